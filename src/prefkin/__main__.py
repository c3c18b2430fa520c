"""The `prefkin` program, also as `python -m prefkin`: an interrupt before anybody listens is one line, too.

What is imported here takes a few milliseconds; what comes before belongs to Python.
"""

import os

__all__ = ["main"]

try:
    from prefkin.apps.cli.program import main
except KeyboardInterrupt:
    os.write(2, b"prefkin: interrupted; nothing was written\n")
    os._exit(130)

if __name__ == "__main__":
    main()
