"""`python -m prefkin`."""

from prefkin.apps.cli.program import main

if __name__ == "__main__":
    main()
