"""One task attempt: what a task is, what it is given, and how what it wrote becomes visible."""
