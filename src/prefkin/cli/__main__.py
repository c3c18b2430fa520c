"""`python -m prefkin.cli`."""

from prefkin.cli.program import main

main()
