"""Sets of paths that answer whether a change can matter to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def ancestors(path: str) -> Iterator[str]:
    """Every directory above a path, the root ('') last."""
    while path:
        path = path.rpartition("/")[0]
        yield path


class PathSet:
    """Files and directories; a member stands for itself and all below it."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._members: set[str] = set()
        self._above: set[str] = set()
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        path = path.removesuffix("/")
        if path not in self._members:
            self._members.add(path)
            self._above.update(ancestors(path))

    def __contains__(self, path: str) -> bool:
        return path in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._members))

    def __len__(self) -> int:
        return len(self._members)

    def overlaps(self, path: str) -> bool:
        """Whether a change at `path` touches a member: the same path, one above it or one below it."""
        path = path.removesuffix("/")
        return path in self._members or path in self._above or any(above in self._members for above in ancestors(path))

    def coarsened(self, most: int) -> PathSet:
        """A set of at most `most` members that covers this one: directories stand in for what is below them."""
        paths = self
        while len(paths) > most:
            paths = PathSet(path.rpartition("/")[0] for path in paths)
        return paths
