"""`python -m progressor` is the command `progressor`."""

from progressor.cli.main import main

main()
