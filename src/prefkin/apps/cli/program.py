"""`prefkin`: an error is one line on stderr and exit code 2; an interrupt is 130; nothing is left half-written."""

from __future__ import annotations

import sys

import typer

from prefkin import __version__
from prefkin.apps.cli import audit, bench, demo, fit, rank, reproduce
from prefkin.apps.cli.console import Stopped, err
from prefkin.errors import PrefkinError

INTERRUPTED = 130  # the code typer gives to Ctrl-C

app = typer.Typer(
    help="Find the people who want the same, pool their comparisons, recommend what is safe, ask what teaches most.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo.demo, audit.audit, fit.fit, rank.rank, bench.bench, reproduce.reproduce):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"prefkin {__version__}")
        raise typer.Exit


@app.callback()
def _prefkin(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None: ...


UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # click's, wherever typer keeps its copy


def main() -> None:
    """Entry point of the `prefkin` program."""
    try:
        sys.exit(app(standalone_mode=False))
    except UsageError as error:
        message = error.format_message()  # type: ignore[attr-defined]
        if message.count("\n") > 2:  # no command given: click hands over the whole help
            typer.echo(message)
            sys.exit(0)
        _refuse(f"{message.strip().rstrip('.')}; see prefkin --help")
    except PrefkinError as error:
        _refuse(str(error))
    except OSError as error:
        _refuse((f"{error.filename}: " if error.filename else "") + str(error.strerror or error))
    except SystemExit as done:
        if done.code == INTERRUPTED and not isinstance(done, Stopped):
            err.print("prefkin: interrupted; nothing was written")
        raise


def _refuse(message: str) -> None:
    err.print("prefkin: ", style="red", end="")
    err.print(" ".join(message.split()))
    sys.exit(2)
