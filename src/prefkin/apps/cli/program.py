"""`prefkin`: an error is one line on stderr and exit code 2, an interrupt one line and 130, whenever it comes.

Everything that takes time to import is imported inside, when Ctrl-C is already looked after.
"""

import os


def main() -> None:
    """Entry point of the `prefkin` program."""
    try:
        from prefkin.apps.cli import interrupts
    except KeyboardInterrupt:  # before there was somebody listening
        os.write(2, b"prefkin: interrupted; nothing was written\n")
        os._exit(130)
    try:
        interrupts.listen()
        from prefkin.apps.cli.commands import run

        code = run()
    except BaseException as error:
        interrupts.leave_if_asked(error)
        raise
    interrupts.ignore()  # all is done and written
    raise SystemExit(code)
