"""What can go wrong, in one line each: what is wrong, where, what to do."""

from __future__ import annotations

__all__ = [
    "AnswerWarning",
    "AssumptionWarning",
    "CalibrationWarning",
    "ConvergenceError",
    "ConvergenceWarning",
    "DependenceWarning",
    "ExperimentError",
    "FeaturesWarning",
    "InvalidCandidates",
    "InvalidComparisons",
    "InvalidParameter",
    "InvalidTable",
    "ModelFileError",
    "NoEdgeWarning",
    "PrefkinError",
    "PrefkinWarning",
    "SeparationWarning",
    "SessionError",
    "ShardError",
    "StoreError",
    "UnknownUser",
]


LINE_ENDS = {ord(end): repr(end)[1:-1] for end in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}


class PrefkinError(Exception):
    """Base of every error prefkin raises on purpose; the command line prints it and exits with 2.

    >>> issubclass(InvalidComparisons, PrefkinError)
    True
    >>> print(InvalidTable("names may hold\\nwhat they like: a message is one line"))
    names may hold\\nwhat they like: a message is one line
    """

    def __str__(self) -> str:
        return (str(self.args[0]) if self.args else "").translate(LINE_ENDS)


class InvalidComparisons(PrefkinError, ValueError):
    """Comparisons that the model cannot use as they are."""


class InvalidCandidates(PrefkinError, ValueError):
    """Candidate actions that cannot be ranked or asked about."""


class InvalidTable(PrefkinError, ValueError):
    """A file or frame that cannot be read as what it was said to be."""


class InvalidParameter(PrefkinError, ValueError):
    """A parameter outside its range."""


class UnknownUser(PrefkinError, KeyError):
    """A user the model was not fitted on."""


class ConvergenceError(PrefkinError, RuntimeError):
    """An optimum that was not reached."""


class ExperimentError(PrefkinError, RuntimeError):
    """An experiment that could not be finished; what was finished is kept."""


class ModelFileError(PrefkinError, ValueError):
    """A saved file that is corrupted, of another version, or of another kind."""


class SessionError(PrefkinError, ValueError):
    """A question or answer that does not belong to this session."""


class ShardError(PrefkinError, RuntimeError):
    """Shards of data larger than memory that are missing, damaged, out of date or in use."""


class StoreError(PrefkinError, RuntimeError):
    """A store of answers that cannot be used, or cannot be reached now."""


class PrefkinWarning(UserWarning):
    """Base of every warning prefkin gives."""


class AnswerWarning(PrefkinWarning):
    """Two answers of which neither says that the first was preferred; the larger one was taken to mean it."""


class AssumptionWarning(PrefkinWarning):
    """The data leave the assumptions behind the paper's constants; results stand, guarantees do not."""


class CalibrationWarning(PrefkinWarning):
    """A radius, or probabilities, whose calibration is in doubt for data like these."""


class ConvergenceWarning(PrefkinWarning):
    """A fit that stopped before its estimates had converged."""


class DependenceWarning(PrefkinWarning):
    """Rows that were made from rankings or ratings: they were made to count for what they tell."""


class FeaturesWarning(PrefkinWarning):
    """A table that does not say which columns are features: every column of numbers was taken that had no other use."""


class PriorWarning(PrefkinWarning):
    """New answers that do not look like those of the people from whom a model's prior was learnt."""


class SeparationWarning(PrefkinWarning):
    """Answers without a single contradiction: how strong preferences are is not in the data."""


class NoEdgeWarning(PrefkinWarning):
    """The given constants connect nobody."""
