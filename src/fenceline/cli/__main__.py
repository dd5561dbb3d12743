"""`python -m fenceline.cli` is the `fenceline` command."""

from fenceline.cli.main import main

main()
