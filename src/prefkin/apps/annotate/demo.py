"""Stories with real sentences, and 24 simulated readers who have read them: something to try without any data."""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np
from scipy.special import expit

from prefkin.apps.annotate.items import Items, read_items
from prefkin.data.comparisons import Comparisons
from prefkin.data.synthetic import DEMO_FEATURES, DEMO_NAMES, DEMO_TASTES

__all__ = ["GUIDELINES", "TITLE", "TOLERANCE", "demo_items", "demo_readers"]

TITLE = "Which summary do you prefer?"
GUIDELINES = """Two summaries of the same piece of news from a small town.

* Choose the one you would rather read, for whatever reason.
* There is no right answer: readers differ, and that is the point.
"""
TOLERANCE = 0.2  # log odds: ten answers are about enough
CHOICES = 40  # of each reader
SPREAD = 0.2  # between readers of the same taste
STRENGTH = 3.0  # of their tastes: about nine of ten choices between unlike summaries can be foreseen


def demo_items() -> Items:
    """Twelve pieces of news, four summaries each, described by six qualities."""
    with as_file(files("prefkin.apps.annotate") / "stories.jsonl") as path:
        return read_items(path, features=DEMO_FEATURES)


def demo_readers(items: Items, rng: np.random.Generator) -> Comparisons:
    """Choices of 24 readers with three tastes.

    >>> demo_readers(demo_items(), np.random.default_rng(0))
    Comparisons(960 comparisons by 24 users, 6 features)
    """
    tastes, n = np.array(list(DEMO_TASTES.values())), len(DEMO_NAMES)
    theta = STRENGTH * (tastes[np.arange(n) % len(tastes)] + SPREAD * rng.standard_normal((n, len(DEMO_FEATURES))))
    owner = np.repeat(np.arange(n), CHOICES)
    context = rng.integers(len(items.candidates), size=len(owner))
    pairs = np.array([rng.choice(items.candidates.sizes[x], 2, replace=False) for x in context])
    first, second = items.candidates.features[items.candidates.starts[context][:, None] + pairs].transpose(1, 0, 2)
    y = rng.random(len(owner)) < expit(np.einsum("ij,ij->i", first - second, theta[owner]))
    return Comparisons.from_arrays(first - second, y, np.array(DEMO_NAMES)[owner], feature_names=DEMO_FEATURES)
