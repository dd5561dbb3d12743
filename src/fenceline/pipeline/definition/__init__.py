"""What people write: the DSL, and the checks of it at definition time."""
