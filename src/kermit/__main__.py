"""`python -m kermit`, for when the `kermit` command is not on the path."""

from kermit.cli import main

main()
