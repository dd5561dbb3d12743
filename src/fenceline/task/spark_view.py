"""A Spark workspace as guards see it, whatever store it is on. What they look at counts as read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from fenceline.task.guard import GuardUnavailable


class ListsFiles(Protocol):
    def files(self, prefix: str = "") -> list[str]: ...


class ViewOnSpark(ABC):
    """What views of all stores have in common; each finds files and frames in its own way."""

    _workspace: ListsFiles

    @abstractmethod
    def frame(self, path: str) -> Any: ...

    def is_dir(self, path: str) -> bool:
        inside = path.strip("/")
        return any(name.startswith(f"{inside}/") for name in self._workspace.files(inside))

    def schema(self, path: str) -> Mapping[str, str]:
        return {field.name: field.dataType.simpleString() for field in self.frame(path).schema.fields}

    def opened(self, path: str) -> Path:
        raise GuardUnavailable(f"{path}: a Spark workspace has no local files", hint="use frame(path) in the guard")
