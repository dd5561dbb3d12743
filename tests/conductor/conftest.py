"""What pytest finds here is in a module of its own, which mypy can tell from the other conftest modules."""

from __future__ import annotations

from conductor_fixtures import api, pytest_terminal_summary, server

__all__ = ["api", "pytest_terminal_summary", "server"]
