"""The `fenceline` command: Typer commands over the same calls the library offers."""
