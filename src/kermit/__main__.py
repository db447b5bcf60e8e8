"""`python -m kermit`, where the `kermit` command is not on the path."""

from kermit.cli import main

main()
