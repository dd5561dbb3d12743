"""What a Spark write changes on a staging branch: new part files first, what they replace only after the job succeeded.

Names of part files never repeat, so a write that failed is taken back by deleting what is new, and one that overwrites
what it reads is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.values import ObjectInfo
from fenceline.spark.parts import hidden


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects below a directory, by their paths in the repository."""

    directory: str
    sizes: dict[str, int]

    @classmethod
    def read(cls, client: Client, ref: str, directory: str) -> Listing:
        return cls.of(directory, client.objects(ref, f"{directory}/"))

    @classmethod
    def of(cls, directory: str, found: Iterable[ObjectInfo]) -> Listing:
        return cls(directory, {each.path: each.size for each in found})

    def relative(self, path: str) -> str:
        return path[len(self.directory) + 1 :]

    def parts(self) -> set[str]:
        """Without what Spark passes over, and without the markers of empty directories."""
        return {path for path in self.sizes if not path.endswith("/") and not hidden(self.relative(path))}


def fresh(before: Listing, after: Listing) -> set[str]:
    return after.parts() - before.parts()


def litter(before: Listing, after: Listing) -> set[str]:
    """What the job left beside its part files: success markers, temporary directories, markers of directories."""
    return set(after.sizes) - set(before.sizes) - after.parts()


def replaced(mode: str, before: Listing, new: Collection[str]) -> set[str]:
    """The part files that go, now that the new ones are there."""
    if mode == "overwrite":
        return before.parts()
    if mode == "overwrite_partitions":
        partitions = {path.rpartition("/")[0] for path in new}
        return {path for path in before.parts() if path.rpartition("/")[0] in partitions}
    return set()


def take_back(before: Listing, after: Listing, delete: Callable[[Collection[str]], None]) -> None:
    delete(set(after.sizes) - set(before.sizes))
