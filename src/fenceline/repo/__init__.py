"""The versioned repository: its values, its port, and the adapters behind it."""
