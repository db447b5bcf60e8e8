"""`python -m kermit.cli`, for launchers such as torchrun."""

from kermit.cli import main

main()
