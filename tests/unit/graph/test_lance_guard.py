"""One package calls Lance: a committing or cleaning call elsewhere would move a head, or delete what is pinned."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src" / "fenceline"
ALLOWED = SOURCE / "graph" / "storage"

ONLY_LANCE_HAS = {
    "cleanup_old_versions",
    "commit_batch",
    "commit_existing_index_segments",
    "compact_files",
    "create_index",
    "create_index_uncommitted",
    "create_scalar_index",
    "deep_clone",
    "delete_config_keys",
    "drop_index",
    "enable_auto_cleanup",
    "execute_uncommitted",
    "merge_existing_index_segments",
    "merge_index_metadata",
    "merge_insert",
    "migrate_manifest_paths_v2",
    "optimize_indices",
    "replace_field_metadata",
    "replace_schema_metadata",
    "shallow_clone",
    "truncate_table",
    "update_config",
    "update_schema_metadata",
    "write_dataset",
}
"""No other object of ours has these, so the name alone is enough."""

COMMITS = {
    "add_columns",
    "alter_columns",
    "checkout_latest",
    "commit",
    "delete",
    "drop_columns",
    "insert",
    "merge",
    "optimize",
    "restore",
    "update",
}
"""Many objects have these: they are refused on what is a Lance dataset by its name or by where it comes from."""

DATASETS = {"dataset", "ds", "lance_dataset", "table_dataset"}
NEVER = {"cleanup_old_versions", "restore", "optimize", "compact_files", "create_scalar_index"}
"""Not even the storage package."""


def offences(tree: ast.AST, allowed: bool = False) -> Iterator[str]:
    for node in ast.walk(tree):
        for name in _imported(node):
            if name.partition(".")[0] in ("lance", "lancedb") and not allowed:
                yield f"imports {name}"
        if isinstance(node, ast.Call) and (called := _called(node)):
            on, method = called
            if allowed:
                if method in NEVER or (on in DATASETS and method in COMMITS):
                    yield f"line {node.lineno} calls {on}.{method}"
            elif method in ONLY_LANCE_HAS or (on in DATASETS and method in COMMITS):
                yield f"line {node.lineno} calls {on}.{method}"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def _called(node: ast.Call) -> tuple[str, str] | None:
    """What is called, as (object, method); an object that is itself opened or checked out counts as a dataset."""
    if isinstance(node.func, ast.Name):
        return "", node.func.id
    if not isinstance(node.func, ast.Attribute):
        return None
    on = node.func.value
    if isinstance(on, ast.Name):
        name = on.id
    elif isinstance(on, ast.Attribute):
        name = on.attr
    elif isinstance(on, ast.Call) and isinstance(on.func, ast.Attribute):
        name = "dataset" if on.func.attr in ("dataset", "checkout_version", "open") and _of_tables(on.func) else ""
    else:
        name = ""
    return name.lstrip("_"), node.func.attr


def _of_tables(func: ast.Attribute) -> bool:
    """`lance.dataset(…)`, `store.open(…)`, `self._store.open(…)`, `tables.open(…)`."""
    on = func.value
    name = on.id if isinstance(on, ast.Name) else on.attr if isinstance(on, ast.Attribute) else ""
    return func.attr != "open" or name.lstrip("_") in ("store", "tables", "table_store")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_storage_package_calls_lance(path: Path) -> None:
    assert list(offences(ast.parse(path.read_text()), allowed=ALLOWED in path.parents)) == []


def test_every_commit_of_the_storage_package_is_detached() -> None:
    nodes = [node for path in sorted(ALLOWED.glob("*.py")) for node in ast.walk(ast.parse(path.read_text()))]
    commits = [n for n in nodes if isinstance(n, ast.Call) and _called(n) == ("LanceDataset", "commit")]
    assert len(commits) == 1
    assert any(k.arg == "detached" and ast.unparse(k.value) == "True" for k in commits[0].keywords)
    creates = [n for n in nodes if isinstance(n, ast.Call) and (_called(n) or ("", ""))[1] == "write_dataset"]
    assert [[ast.unparse(k.value) for k in n.keywords if k.arg == "mode"] for n in creates] == [["'create'"]]


@pytest.mark.parametrize(
    "code",
    [
        "import lance",
        "import lance.fragment as f",
        "from lance import dataset",
        "def f():\n    from lance.optimize import Compaction",
        "import lancedb",
        "x.cleanup_old_versions()",
        "store.open(pin).delete('true')",
        "self._store.open(pin).update({})",
        "dataset.restore()",
        "dataset.optimize.compact_files()",
        "ds.merge_insert('id').execute(rows)",
        "LanceDataset.commit_batch(x, [])",
        "write_dataset(rows, 'x')",
        "anything.create_scalar_index('id', 'BTREE')",
        "self._dataset.insert(rows)",
    ],
)
def test_the_guard_sees(code: str) -> None:
    assert list(offences(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["objects.delete(keys)", "connection.commit()", "values.update(more)", "repo.merge('dev')", "import lancet"]
)
def test_the_guard_leaves_alone(code: str) -> None:
    assert not list(offences(ast.parse(code)))
