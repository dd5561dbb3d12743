"""Random chains of staged versions, branching anywhere, against a plain dictionary."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from fenceline.graph.filters import any_of
from fenceline.graph.pins import Pin
from fenceline.graph.storage import TableStore
from fenceline.repo.native.local import LocalObjects

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("name", pa.string()), ("age", pa.int64())])
STEPS = ["append", "append", "merge", "part", "update", "delete", "where", "index", "index", "compact", "overwrite"]
Model = dict[str, tuple[str | None, int | None]]


def table(rows: Model) -> pa.Table:
    return pa.table(
        {"id": list(rows), "name": [r[0] for r in rows.values()], "age": [r[1] for r in rows.values()]}, schema=SCHEMA
    )


class Chain:
    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.store = TableStore(LocalObjects(root))
        self.versions: list[tuple[Pin, Model]] = [(self.store.create("t", SCHEMA), {})]
        self.fresh = 0

    def row(self) -> tuple[str, int]:
        return f"name {self.random.randrange(5)}", self.random.randrange(20)

    def new_ids(self, most: int) -> list[str]:
        start = self.fresh
        self.fresh += self.random.randint(1, most)
        return [f"n{n}" for n in range(start, self.fresh)]

    def some(self, model: Model) -> list[str]:
        return self.random.sample(sorted(model), self.random.randint(0, len(model)))

    def step(self) -> None:
        pin, before = self.versions[-1] if self.random.random() < 0.8 else self.random.choice(self.versions)
        model = dict(before)
        match self.random.choice(STEPS):
            case "append":
                rows: Model = {i: self.row() for i in self.new_ids(40)}
                pin = self.store.stage_append(pin, table(rows))
                model.update(rows)
            case "merge":
                rows = {i: self.row() for i in (*self.some(model), *self.new_ids(10))}
                pin = self.store.stage_merge(pin, table(rows))
                model.update(rows)
            case "part":
                ages = {i: self.random.randrange(20) for i in (*self.some(model), *self.new_ids(3))}
                pin = self.store.stage_merge(pin, pa.table({"id": list(ages), "age": list(ages.values())}))
                model.update({i: (model.get(i, (None, None))[0], age) for i, age in ages.items()})
            case "update":
                rows = {i: self.row() for i in self.some(model)}
                pin = self.store.stage_merge(pin, table({**rows, "nobody": self.row()}), insert=False)
                model.update(rows)
            case "delete":
                gone = self.some(model)[:30]
                pin = self.store.stage_delete(pin, ids=[*gone, "nobody"])
                for i in gone:
                    del model[i]
            case "where":
                age = self.random.randrange(20)
                pin = self.store.stage_delete(pin, where=f"`age` = {age}")
                model = {i: r for i, r in model.items() if r[1] != age}
            case "index":
                column = self.random.choice(["id", "age"])
                pin = self.store.stage_index(pin, column, "btree", rebuild=self.random.random() < 0.2)
            case "compact":
                pin = self.store.stage_compaction(pin)
            case "overwrite":
                model = {i: self.row() for i in self.some(model)} if self.random.random() < 0.3 else model
                pin = self.store.stage_overwrite(pin, SCHEMA, table(model))
        self.versions.append((pin, model))

    def check(self, store: TableStore, pin: Pin, model: Model) -> None:
        found = store.scan(pin).read_all()
        assert found.num_rows == len(model) == pin.rows
        assert {r["id"]: (r["name"], r["age"]) for r in found.to_pylist()} == model
        asked = [*self.random.sample(sorted(model), min(5, len(model))), "nobody"]
        by_id = store.scan(pin, where=any_of("id", asked)).read_all().to_pylist()
        assert sorted(r["id"] for r in by_id) == sorted(set(asked) - {"nobody"})
        for age in range(0, 20, 5):
            by_age = store.scan(pin, ["id"], f"`age` = {age}").read_all()["id"].to_pylist()
            assert sorted(by_age) == sorted(i for i, r in model.items() if r[1] == age)
        assert list(store.problems(pin)) == []


@pytest.mark.parametrize("seed", range(6))
def test_random_chains_agree_with_a_dictionary(seed: int, tmp_path: Path) -> None:
    chain = Chain(tmp_path / "repo", seed)
    for _ in range(30):
        chain.step()
        chain.check(chain.store, *chain.versions[-1])
    again = TableStore(LocalObjects(tmp_path / "repo"))
    for pin, model in chain.versions:
        chain.check(again, pin, model)
