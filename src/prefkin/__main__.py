"""The `prefkin` program, also as `python -m prefkin`: an interrupt before anybody listens is one line, too.

To listen is the first thing that is done, before any import that takes time; what comes before belongs to Python.
"""

import _signal  # type: ignore[import-not-found]  # of which signal is made
import os
import sys

__all__ = ["main"]


def _leave(*_: object) -> None:
    os.write(2, b"prefkin: interrupted; nothing was written\n")
    os._exit(130)


def _listen() -> None:
    _signal.signal(_signal.SIGINT, _leave)


def main() -> None:
    """The program; it listens itself as soon as it can."""
    _listen()
    from prefkin.apps.cli.program import main as program

    program()


if __name__ == "__main__":
    main()
elif os.path.basename(sys.argv[0]).startswith("prefkin"):  # noqa: PTH119 - the script, which calls main next
    _listen()
