"""Finding tasks: by the name of a module, or the path of a file."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from fenceline.errors import FencelineError
from fenceline.task.contract import LoadError, TaskContractError, TaskDefinition
from fenceline.task.version import shown_path


def load(reference: str) -> tuple[TaskDefinition[Any, Any], ...]:
    """The tasks that `package.module`, `package.module:name` or `path/to/file.py:name` refers to.

    A name is that of a task or of its function. A module stands for the tasks it defines, or, if it defines none, for
    those it imports. The working directory, and that of a file's outermost package, become importable.
    """
    place, _, wanted = reference.partition(":")
    if not place or (":" in reference and not wanted):
        raise LoadError(
            f"{reference!r} names no tasks", hint="write package.module, package.module:task or path/to/file.py:task"
        )
    module = _from_file(place) if place.endswith(".py") or os.sep in place else _from_name(place)
    tasks = _tasks_in(module)
    return (_pick(wanted, tasks, module, place),) if wanted else tasks


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


def _tasks_in(module: ModuleType) -> tuple[TaskDefinition[Any, Any], ...]:
    found = list({id(each): each for each in vars(module).values() if isinstance(each, TaskDefinition)}.values())
    tasks = [each for each in found if each.__module__ == module.__name__] or found
    if not tasks:
        raise LoadError(f"{module.__name__} has no tasks", hint="put @task(name='…', owner='…') on a function in it")
    names = [each.name for each in tasks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TaskContractError(f"{module.__name__} has two tasks named {twice[0]!r}", hint="give one another name=")
    return tuple(tasks)


def _pick(
    wanted: str, tasks: tuple[TaskDefinition[Any, Any], ...], module: ModuleType, place: str
) -> TaskDefinition[Any, Any]:
    attribute = getattr(module, wanted, None)
    found = [each for each in tasks if each.name == wanted]
    if isinstance(attribute, TaskDefinition) and attribute not in found:
        found.append(attribute)
    if len(found) == 1:
        return found[0]
    if found:
        raise LoadError(
            f"{wanted!r} is the name of the task {found[0]!r} and of the function of {found[1]!r}",
            hint=f"name the other one: {place}:{found[0].__name__} or {place}:{found[1].name}",
        )
    if attribute is not None:
        raise LoadError(f"{wanted} in {module.__name__} is not a task", hint="put @task(name='…', owner='…') on it")
    names = [each.name for each in tasks]
    close = difflib.get_close_matches(wanted, [*names, *(each.__name__ for each in tasks)], n=1)
    hint = f"did you mean {place}:{close[0]}?" if close else f"it has {', '.join(names)}"
    raise LoadError(f"{module.__name__} has no task {wanted!r}", hint=hint)
