"""Finding what a module declares: by the name of the module, or the path of its file."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

from fenceline.errors import ContractError, FencelineError
from fenceline.task.contract import LoadError, TaskContractError, TaskDefinition
from fenceline.task.version import shown_path


class Declared(Protocol):
    """What can be found in a module: a task, a pipeline."""

    @property
    def name(self) -> str: ...


D = TypeVar("D", bound=Declared)


@dataclass(frozen=True, slots=True)
class Sought(Generic[D]):
    """What is looked for, and how to speak of it."""

    kind: type[D]
    noun: str
    decorator: str
    twice: type[ContractError]
    """Raised if two of them have one name."""

    def find(self, reference: str) -> tuple[D, ...]:
        """What `package.module`, `package.module:name` or `path/to/file.py:name` refers to.

        A name is the declared one or that of the function. A module stands for what it defines, or, if it defines none,
        for what it imports. The working directory, and that of a file's outermost package, become importable.
        """
        place, _, wanted = reference.partition(":")
        if not place or (":" in reference and not wanted):
            raise LoadError(
                f"{reference!r} names no {self.noun}s",
                hint=f"write package.module, package.module:{self.noun} or path/to/file.py:{self.noun}",
            )
        module = module_at(place)
        found = self._all_in(module)
        return (self._pick(wanted, found, module, place),) if wanted else found

    def _all_in(self, module: ModuleType) -> tuple[D, ...]:
        every = list({id(each): each for each in vars(module).values() if isinstance(each, self.kind)}.values())
        found = [each for each in every if each.__module__ == module.__name__] or every
        if not found:
            raise LoadError(f"{module.__name__} has no {self.noun}s", hint=f"put {self.decorator} on a function in it")
        names = [each.name for each in found]
        again = sorted({name for name in names if names.count(name) > 1})
        if again:
            raise self.twice(
                f"{module.__name__} has two {self.noun}s named {again[0]!r}", hint="give one another name="
            )
        return tuple(found)

    def _pick(self, wanted: str, among: tuple[D, ...], module: ModuleType, place: str) -> D:
        attribute = getattr(module, wanted, None)
        found = [each for each in among if each.name == wanted]
        if isinstance(attribute, self.kind) and attribute not in found:
            found.append(attribute)
        if len(found) == 1:
            return found[0]
        if found:
            raise LoadError(
                f"{wanted!r} is the name of the {self.noun} {found[0]!r} and of the function of {found[1]!r}",
                hint=f"name the other one: {place}:{_function(found[0])} or {place}:{found[1].name}",
            )
        if attribute is not None:
            raise LoadError(f"{wanted} in {module.__name__} is not a {self.noun}", hint=f"put {self.decorator} on it")
        names = [each.name for each in among]
        close = difflib.get_close_matches(wanted, [*names, *map(_function, among)], n=1)
        hint = f"did you mean {place}:{close[0]}?" if close else f"it has {', '.join(names)}"
        raise LoadError(f"{module.__name__} has no {self.noun} {wanted!r}", hint=hint)


def _function(declared: object) -> str:
    return str(vars(declared)["__qualname__"]).rpartition(".")[2]


_TASKS: Sought[TaskDefinition[Any, Any]] = Sought(
    TaskDefinition, "task", "@task(name='…', owner='…')", TaskContractError
)


def load(reference: str) -> tuple[TaskDefinition[Any, Any], ...]:
    """The tasks that a reference leads to: see `Sought.find`."""
    return _TASKS.find(reference)


def module_at(place: str) -> ModuleType:
    """The module of a name, or of a file."""
    return _from_file(place) if place.endswith(".py") or os.sep in place else _from_name(place)


def _from_name(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise LoadError(f"{name!r} is not the name of a module", hint="write package.module or path/to/file.py")
    return _imported(name, os.getcwd())


def _from_file(path: str) -> ModuleType:
    file = Path(path).resolve()
    if not file.is_file():
        raise LoadError(f"there is no file {path}", hint="name a Python file, seen from the working directory")
    root, parts = file.parent, [file.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    if not all(part.isidentifier() for part in parts):
        raise LoadError(f"{path} cannot be imported as {'.'.join(parts)}", hint="rename it: letters, digits and '_'")
    module = _imported(".".join(parts), str(root))
    if Path(module.__file__ or "").resolve() != file:
        taken = shown_path(module.__file__) if module.__file__ else "a built-in module"
        raise LoadError(f"the module name of {path}, {module.__name__}, is taken by {taken}", hint="rename the file")
    return module


def _imported(name: str, root: str) -> ModuleType:
    if root not in sys.path:
        sys.path.insert(0, root)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except FencelineError:
        raise
    except (Exception, SystemExit) as error:  # the module is the user's code
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise LoadError(
                f"there is no module {error.name!r}",
                hint="run in the directory that holds it, install its package, or name its file: path/to/file.py",
            ) from None
        raise LoadError(
            f"{name} cannot be imported: {type(error).__name__}: {error}, at {_origin(error)}",
            hint="python -c 'import …' shows all of it; correct the module",
        ) from error


def _origin(error: BaseException) -> str:
    """Where an import failed; import machinery is not of interest."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{shown_path(error.filename)}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    return f"{shown_path(frames[-1].filename)}:{frames[-1].lineno}"
