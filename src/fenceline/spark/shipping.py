"""Giving a task's module to the executors of a cluster, so that functions of it can run there."""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import tempfile
import threading
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from fenceline.errors import ContractError
from fenceline.spark.session import is_connect, runs_locally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_lock = threading.Lock()
_shipped: WeakKeyDictionary[object, dict[str, str]] = WeakKeyDictionary()


def ship_module(session: SparkSession, module: ModuleType | str) -> str | None:
    """Ship a module, once for each application; what was shipped. Nothing is where executors are this process.

    A module inside a package takes its whole package along. What it imports besides must be installed there.
    """
    name = module if isinstance(module, str) else module.__name__
    if name == "__main__" or runs_locally(session):  # functions of a script are shipped by value
        return None
    top = name.partition(".")[0]
    owner: object = session if is_connect(session) else session.sparkContext
    with _lock:
        shipped = _shipped.setdefault(owner, {})
        if top not in shipped:
            packed = _packed(top, name)
            if is_connect(session):
                session.addArtifacts(packed, pyfile=True)
            else:
                session.sparkContext.addPyFile(packed)
            shipped[top] = packed
        return shipped[top]


def _packed(top: str, name: str) -> str:
    found = importlib.util.find_spec(top)
    places = list(found.submodule_search_locations or ()) if found else []
    if found is None or not (places or found.origin):
        raise ContractError(f"there is no module {name} to ship to executors", hint="import it first")
    if not places:
        return str(found.origin)
    package, target = Path(places[0]), tempfile.mkdtemp(prefix="fenceline-ship-")
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    return shutil.make_archive(f"{target}/{top}", "zip", root_dir=package.parent, base_dir=package.name)
