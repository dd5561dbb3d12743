"""The runner on one machine: runs in SQLite, workers in threads or processes."""
