"""`prefkin`: an error is one line on stderr and exit code 2, an interrupt one line and 130, whenever it comes.

Everything that takes time to import is imported inside, when Ctrl-C is already looked after.
"""

import gc

from prefkin.apps.cli import interrupts

MADE = 200_000  # objects between two looks for garbage: imports make many and leave none, and a look takes long


def main() -> None:
    """Entry point of the `prefkin` program."""
    try:
        gc.set_threshold(MADE)
        interrupts.listen()
        from prefkin.apps.cli.commands import run

        code = run()
    except BaseException as error:
        interrupts.leave_if_asked(error)
        raise
    interrupts.ignore()  # all is done and written
    raise SystemExit(code)
