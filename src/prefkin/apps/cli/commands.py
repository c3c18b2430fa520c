"""The commands by name. Each is imported when it is run; `--help` needs no more than its line here."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from prefkin import __version__
from prefkin.apps.cli import interrupts, output
from prefkin.errors import PrefkinError

__all__ = ["COMMANDS", "app", "run"]

COMMANDS = {
    "demo": "The main job on built-in data, in seconds, with pictures.",
    "embed": "Texts as features, each distinct one once; the same command goes on where it was interrupted.",
    "audit": "What is wrong or thin in the data, before any fit.",
    "fit": "Fit, print a summary, save the model and pictures.",
    "rank": "Rank each context's actions for one user, or for all; the recommended action is marked.",
    "predict": "The probability of each answer: the pairs as they were given, with a column p.",
    "export": "What was learnt, for trainers and annotation tools.",
    "ask": "Questions in the terminal, each next one chosen by the model; every answer is kept the moment it is given.",
    "plan": "Whom to ask what next: the questions that teach most about everybody.",
    "update": "New answers into a fitted folder: those who gave them, and new people, are placed anew.",
    "report": "One self-contained page: who these people are, how sure that is, what is thin, what to ask next.",
    "annotate": "A page on which people compare pairs, each next one chosen by the model.",
    "answers": "What people answered, as comparisons that fit reads.",
    "bench": "How fast each public call is, against what one would write instead, in one run.",
    "reproduce": "Run the experiments of the paper's section 6 and say what holds.",
}
"""Name and first line of help; the function of that name in the module of that name."""


class _WhenRun(TyperGroup):
    """Commands that are imported when they are chosen."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        one = typer.Typer(add_completion=False)
        one.command(name)(getattr(import_module(f"prefkin.apps.cli.{name}"), str(name)))
        interrupts.running()
        return name, typer.main.get_command(one), rest


app = typer.Typer(
    cls=_WhenRun,
    help="Find the people who want the same, pool their comparisons, recommend what is safe, ask what teaches most.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _name, _line in COMMANDS.items():
    app.command(_name, help=_line)(lambda: None)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"prefkin {__version__}")
        raise typer.Exit


@app.callback()
def _prefkin(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None: ...


TRACEBACK = "PREFKIN_TRACEBACK"
UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # click's, wherever typer keeps its copy


def run() -> int:
    """Run the command that was asked for; the exit code."""
    output.any_character()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries; ours are printed in a line each
        code = _run()
    reason = output.unsaid()
    return code if reason is None else _refused(reason)


def _run() -> int:
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        message = error.format_message()  # type: ignore[attr-defined]
        if not message.strip() or message.count("\n") > 2:  # no command given: the help was shown, or is handed over
            typer.echo(message, nl=bool(message))
            return 0
        return _refused(f"{message.strip().rstrip('.')}; see prefkin --help")
    except PrefkinError as error:
        return _refused(str(error))
    except BrokenPipeError:  # nobody reads on
        return 0
    except SystemExit as left:
        if isinstance(left.__context__, BrokenPipeError):  # click ends the program where nobody reads its help
            return 0
        raise
    except OSError as error:
        return _refused((f"{error.filename}: " if error.filename else "") + str(error.strerror or error))
    except MemoryError as error:
        return _refused(f"not enough memory: {error}".removesuffix(": "))
    except Exception as error:  # ours to mend, but a traceback helps nobody who did not write this
        if os.environ.get(TRACEBACK):
            raise
        return _refused(
            f"unexpected {type(error).__name__}: {error}; a fault of prefkin: please report what the same "
            f"command says with {TRACEBACK}=1 before it"
        )
    if code == interrupts.INTERRUPTED:  # what typer makes of Ctrl-C
        raise SystemExit(code)
    return int(code or 0)


def _refused(message: str) -> int:
    interrupts.check()  # an error may be what became of an interrupt
    with suppress(OSError):
        typer.secho("prefkin: ", fg="red", nl=False, err=True)
        typer.echo(" ".join(message.split()), err=True)
    return 2
