"""`prefkin`: an error is one line on stderr and exit code 2; an interrupt is 130; nothing is left half-written."""

from __future__ import annotations

import sys

import typer
from rich.markup import escape

from prefkin import __version__
from prefkin.cli import audit, demo, fit, rank
from prefkin.cli.console import err
from prefkin.errors import PrefkinError

app = typer.Typer(
    help="Find the people who want the same, pool their comparisons, recommend what is safe, ask what teaches most.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo.demo, audit.audit, fit.fit, rank.rank):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"prefkin {__version__}")
        raise typer.Exit


@app.callback()
def _prefkin(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None: ...


def main() -> None:
    """Entry point of the `prefkin` program."""
    try:
        app()
    except PrefkinError as error:
        err.print(f"[red]prefkin[/]: {escape(str(error))}")
        sys.exit(2)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        err.print(f"[red]prefkin[/]: {escape(where + str(error.strerror or error))}")
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("prefkin: interrupted; nothing was written")
        sys.exit(130)


if __name__ == "__main__":
    main()
