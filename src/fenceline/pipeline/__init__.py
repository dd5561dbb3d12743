"""Many tasks: how they are wired, what that compiles to, and who runs it."""
