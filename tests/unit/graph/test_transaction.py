"""Graph transactions in one process: read-your-writes, all or nothing, conflicts with the numbers of the tables."""

# ruff: noqa: PT012, SIM117 - a transaction is a block, and so is what fails in it
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline import FencelineError, PublishConflict, Repository
from fenceline.errors import AlreadyExists, ContractError, NotFound, StoreFull, TransactionClosed
from fenceline.graph.graph import Graph
from fenceline.graph.maintenance import ensure_indices
from fenceline.graph.pins import Pin
from fenceline.graph.schema import InvalidValue, Rule, UnknownProperty
from fenceline.graph.storage import Rows, TableStore
from fenceline.graph.storage.rows import RowStaging
from fenceline.graph.transaction import GraphTransaction
from fenceline.graph.violations import ConstraintViolations, ExpectedVersionMismatch

SCHEMA = """
node Person { name: String @key  age: I32? @range(0..150)  email: String? @unique }
node City { name: String @key }
node Note { text: String }
edge Knows: Person -> Person @card(0..2) { since: Date? }
edge LivesIn: Person -> City
"""


@pytest.fixture
def graph(disk_repo: Repository) -> Graph:
    graph = disk_repo.graph()
    graph.init(SCHEMA, actor="test")
    with graph.transaction(actor="test") as tx:
        tx.insert("Person", [{"name": "ada", "age": 36}, {"name": "bob"}])
        tx.insert("City", {"name": "Rome"})
        tx.insert_edge("Knows", "ada", "bob", id="k1")
        tx.insert_edge("LivesIn", "ada", "Rome", id="l1")
    return graph


def names(graph: Graph, table: str = "Person") -> list[str]:
    return sorted(graph.table(table).to_arrow(["id"])["id"].to_pylist())


def published(graph: Graph) -> dict[str, int]:
    view = graph.at("main")
    return {key: view.snapshot.pin(key).published for key in view.schema.table_keys()}


def lance_files(repo: Repository) -> set[str]:
    return {info.key for info in repo.native.objects.list("tables/")}


# --- a graph ----------------------------------------------------------------------------------------------------


def test_one_transaction_is_one_entry_whatever_it_touches(graph: Graph, disk_repo: Repository) -> None:
    before = disk_repo.head("main").seq
    with graph.transaction(actor="test", message="all of it") as tx:
        tx.insert("Person", {"name": "cy"})
        tx.insert("City", {"name": "Bari"})
        tx.insert_edge("LivesIn", "cy", "Bari")
        tx.files.write("notes/cy.txt", "moved in")
    assert disk_repo.head("main").seq == before + 1
    assert disk_repo.read("main", "notes/cy.txt") == b"moved in"
    assert names(graph) == ["ada", "bob", "cy"]
    assert published(graph) == {
        "node:City": 3, "node:Note": 1, "node:Person": 3, "edge:Knows": 2, "edge:LivesIn": 3
    }  # fmt: skip
    changed = sorted(unit.path for unit in disk_repo.diff("main~1", "main"))
    assert changed == [
        "notes/cy.txt", "tables/edge.LivesIn.pin", "tables/node.City.pin", "tables/node.Person.pin"
    ]  # fmt: skip


def test_time_travel_and_branches(graph: Graph, disk_repo: Repository) -> None:
    disk_repo.create_branch("dev", "main")
    with disk_repo.graph("dev").transaction() as tx:
        tx.delete("Person", "ada")
    assert names(disk_repo.graph("dev")) == ["bob"]
    assert names(graph) == ["ada", "bob"]
    assert graph.at("dev~1").table("Person").count() == 2
    assert graph.table("node:Person").rows({"name": "ada"})[0]["age"] == 36
    assert graph.table("Person").count("age > 30") == 1
    assert list(graph.table("Person").to_pandas()["name"]) == ["ada", "bob"]


def test_a_graph_below_a_directory_and_another_beside_it(disk_repo: Repository) -> None:
    one, other = disk_repo.graph(path="graphs/one"), disk_repo.graph(path="graphs/other/")
    one.init("node A { name: String @key }")
    other.init("node B { name: String @key }")
    with one.transaction() as tx:
        tx.insert("A", {"name": "a"})
    assert names(one, "A") == ["a"]
    assert other.table("B").count() == 0
    assert disk_repo.stat("main", "graphs/other/schema.pg")


def test_what_is_no_graph(disk_repo: Repository, tmp_path: Any) -> None:
    with pytest.raises(NotFound, match=r"graph\.json"), disk_repo.graph().transaction() as tx:
        tx.insert("Person", {"name": "ada"})
    with pytest.raises(NotFound, match=r"graph\.init"):
        disk_repo.graph().table("Person")


def test_a_graph_is_created_once(graph: Graph) -> None:
    with pytest.raises(AlreadyExists, match=r"graph\.json"):
        graph.init(SCHEMA)
    assert list(graph._repo.objects.list("intents/")) == []


def test_a_read_only_repository_has_no_transactions(graph: Graph, disk_repo: Repository) -> None:
    from fenceline import open_repository

    reader = open_repository(disk_repo.url, mode="r").graph()
    assert names(reader) == ["ada", "bob"]
    with pytest.raises(TransactionClosed, match="read-only"):
        reader.transaction()


# --- statements, in order ---------------------------------------------------------------------------------------


def test_every_statement_sees_those_before_it(graph: Graph) -> None:
    with graph.transaction() as tx:
        assert tx.insert("Person", [{"name": "cy", "age": 5}, {"name": "dan", "age": 6}]) == ["cy", "dan"]
        assert tx.update("Person", where="age < 6", set={"age": 7}) == 1
        assert [row["name"] for row in tx.rows("Person", {"age": [6, 7]})] == ["cy", "dan"]
        assert tx.update("Person", "ada", {"age": 37}) == 1
        assert tx.rows("Person", id="ada")[0]["age"] == 37
        edge = tx.insert_edge("Knows", "cy", "ada", {"since": "2026-01-01"})
        assert tx.update_edge("Knows", edge, {"since": None}) == 1
        assert tx.rows("Knows", {"src": "cy"})[0]["since"] is None
        assert tx.delete("Person", where="age = 37") == 1
        assert tx.rows("Knows") == [], "ada's edges went with her, the new one too"
        assert tx.rows("LivesIn") == []
        tx.insert("Person", {"name": "ada", "age": 1})
        assert tx.count("Person", "name LIKE 'a%'") == 1
        tx.delete("Person", "dan")
        assert tx.count("Person") == 3
    assert {row["name"]: row["age"] for row in graph.table("Person").rows()} == {"ada": 1, "bob": None, "cy": 7}
    assert graph.table("Knows").count() == graph.table("LivesIn").count() == 0


def test_upsert_changes_what_is_there_and_inserts_the_rest(graph: Graph) -> None:
    with graph.transaction() as tx:
        assert tx.upsert("Person", [{"name": "ada", "email": "a@x"}, {"name": "eve"}, {"name": "eve", "age": 2}]) == 2
    found = {row["name"]: (row["age"], row["email"]) for row in graph.table("Person").rows()}
    assert found == {"ada": (36, "a@x"), "bob": (None, None), "eve": (2, None)}


def test_nodes_without_a_key_get_ids(graph: Graph) -> None:
    with graph.transaction() as tx:
        one = tx.insert("Note", {"text": "a"})
        assert tx.update("Note", one, {"text": "b"}) == 1
    assert graph.table("Note").rows() == [{"id": one, "text": "b"}]


def test_what_changes_nothing_publishes_nothing(graph: Graph, disk_repo: Repository) -> None:
    before = disk_repo.head("main").seq
    with graph.transaction() as tx:
        tx.update("Person", "ada", {"age": 36})
        tx.insert("City", {"name": "Bari"})
        tx.delete("City", "Bari")
        assert tx.update("Person", "nobody", {"age": 1}) == 0
    assert tx.result.op == "noop"
    assert disk_repo.head("main").seq == before


def test_deleting_and_inserting_the_same_row_again_is_one_change(graph: Graph) -> None:
    with graph.transaction() as tx:
        tx.delete("Person", "bob")
        tx.insert("Person", {"name": "bob", "age": 9})
    assert graph.table("Person").rows({"name": "bob"})[0]["age"] == 9
    assert graph.table("Knows").count() == 0
    assert graph.table("Person").count() == 2


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        (lambda tx: tx.insert("Person", {"name": "cy", "age": "old"}), InvalidValue),
        (lambda tx: tx.insert("Person", [{"name": "cy"}, {"name": "dan", "agee": 1}]), UnknownProperty),
        (lambda tx: tx.insert("Person", [{"name": "cy"}, {"name": "cy"}]), AlreadyExists),
        (lambda tx: tx.insert("Persn", {"name": "cy"}), NotFound),
        (lambda tx: tx.insert("Person", {"age": 3}), InvalidValue),
        (lambda tx: tx.update("Person", where={}, set={"age": 2.5}), InvalidValue),
        (lambda tx: tx.update("Person", "ada", {"name": "eve"}), ContractError),
        (lambda tx: tx.update("Person", where="agee = 1", set={"age": 1}), UnknownProperty),
        (lambda tx: tx.update("Person", where="age = (SELECT 1)", set={"age": 1}), ContractError),
        (lambda tx: tx.update("Person", where="age >", set={"age": 1}), ContractError),
        (lambda tx: tx.update("Person", where="age > 1 ORDER BY age", set={"age": 1}), ContractError),
        (lambda tx: tx.delete("Person"), ContractError),
        (lambda tx: tx.update_edge("Knows", "k1", {"src": "bob"}), ContractError),
        (lambda tx: tx.insert_edge("Knows", "ada", None), ContractError),
        (lambda tx: tx.files.write("tables/node.Person.pin", b""), ContractError),
        (lambda tx: tx.files.delete("graph.json"), ContractError),
    ],
)
def test_a_statement_that_fails_leaves_nothing_and_the_next_works(
    graph: Graph, statement: Callable[[GraphTransaction], Any], error: type[FencelineError]
) -> None:
    with graph.transaction() as tx:
        before = {name: tx.rows(name) for name in ("Person", "Knows", "LivesIn")}
        with pytest.raises(error):
            statement(tx)
        assert {name: tx.rows(name) for name in ("Person", "Knows", "LivesIn")} == before
        tx.insert("Person", {"name": "cy"})
    assert names(graph) == ["ada", "bob", "cy"]


# --- all or nothing ---------------------------------------------------------------------------------------------


def disk_full(*args: object, **kwargs: object) -> Any:
    raise StoreFull("no room left while staging")


@pytest.mark.parametrize("how", ["body", "rule", "endpoint", "cardinality", "disk full", "sealed too late"])
def test_a_failure_of_any_kind_leaves_every_table_as_it_was_and_the_next_goes_on(
    how: str, graph: Graph, disk_repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, files, seq = published(graph), lance_files(disk_repo), disk_repo.head("main").seq
    with pytest.raises((FencelineError, ZeroDivisionError)), monkeypatch.context() as patch:
        with graph.transaction() as tx:
            tx.insert("Person", {"name": "cy", "age": 200 if how == "rule" else 20})
            tx.insert("City", {"name": "Bari"})
            tx.insert_edge("LivesIn", "cy", "nowhere" if how == "endpoint" else "Bari")
            tx.files.write("cy.txt", b"cy")
            if how == "cardinality":
                tx.insert_edges("Knows", [{"from": "ada", "to": "bob"}, {"from": "ada", "to": "cy"}])
            if how == "body":
                raise ZeroDivisionError
            if how == "disk full":
                patch.setattr(TableStore, "stage_append", _second_time(TableStore.stage_append, disk_full))
            if how == "sealed too late":
                patch.setattr(type(tx._tx._try), "seal", disk_full)
    assert published(graph) == before
    assert disk_repo.head("main").seq == seq
    assert lance_files(disk_repo) == files or how == "sealed too late"
    assert "cy.txt" not in [entry.path for entry in disk_repo.list("main")]
    with graph.transaction() as tx:
        tx.insert("Person", {"name": "cy"})
    assert names(graph) == ["ada", "bob", "cy"]
    assert disk_repo.fsck().clean


def _second_time(first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    calls = iter([first])
    return lambda *args, **kwargs: next(calls, then)(*args, **kwargs)


def test_broken_rules_are_told_together_with_their_rows(graph: Graph) -> None:
    with pytest.raises(ConstraintViolations) as caught, graph.transaction() as tx:
        tx.insert("Person", [{"name": "ada"}, {"name": "cy", "age": 151, "email": "e"}, {"name": "dan", "email": "e"}])
        tx.insert_edge("Knows", "cy", "nobody", id="k9")
    told = {(b.table_key, b.id, b.rule, b.properties, b.value) for b in caught.value.violations}
    assert told == {
        ("node:Person", "ada", Rule.KEY, ("name",), "ada"),
        ("node:Person", "cy", Rule.RANGE, ("age",), "151"),
        ("node:Person", "cy", Rule.UNIQUE, ("email",), "e"),
        ("node:Person", "dan", Rule.UNIQUE, ("email",), "e"),
        ("edge:Knows", "k9", Rule.ENDPOINTS, ("dst",), "nobody"),
    }


def test_an_insert_of_what_is_there_is_not_hidden_by_deleting_it(graph: Graph) -> None:
    with pytest.raises(ConstraintViolations, match="@key"), graph.transaction() as tx:
        tx.insert("City", {"name": "Rome"})
        tx.delete("City", "Rome")


def test_the_same_key_applies_once(graph: Graph, disk_repo: Repository) -> None:
    for _ in range(2):
        with graph.transaction(key="once") as tx:
            tx.insert("Person", {"name": "cy"})
            tx.insert_edge("Knows", "cy", "ada")
    assert tx.result.op == "adopt"
    assert tx.already_applied
    assert graph.table("Person").count() == 3
    assert graph.table("Knows").count() == 2


def test_a_transaction_is_used_inside_its_block(graph: Graph) -> None:
    tx = graph.transaction()
    with pytest.raises(TransactionClosed):
        tx.insert("Person", {"name": "cy"})
    with tx:
        pass
    with pytest.raises(TransactionClosed):
        tx.rows("Person")


def test_many_rows_by_id(graph: Graph) -> None:
    """More than fit into a filter of a scan."""
    with graph.transaction() as tx:
        tx.insert("Person", [{"name": f"p{n}"} for n in range(2500)])
    with graph.transaction() as tx:
        assert tx.upsert("Person", [{"name": f"p{n}", "age": 1} for n in range(1200, 2600)]) == 1400
        tx.insert_edges("Knows", [{"from": f"p{n}", "to": "ada"} for n in range(2600)])
    with graph.transaction() as tx:
        assert tx.delete("Person", where="age = 1") == 1400
    assert graph.table("Person").count() == 2 + 1200
    assert graph.table("Knows").count() == 1 + 1200


def test_many_small_transactions_do_not_leave_many_fragments(
    graph: Graph, disk_repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fenceline.graph.staging.FOLD_AT", 4)
    for n in range(10):
        with graph.transaction() as tx:
            tx.insert("Person", {"name": f"p{n}", "age": n})
            tx.delete("Person", where={"age": n - 2} if n > 1 else {"age": 100})
    pin = graph.at("main").snapshot.pin("node:Person")
    assert pin.fragments <= 5
    assert {row["age"] for row in graph.table("Person").rows("name LIKE 'p%'")} == {8, 9}
    assert graph.at("main~1").table("Person").count("name LIKE 'p%'") == 2
    assert disk_repo.fsck().clean


# --- with others ------------------------------------------------------------------------------------------------


def test_two_writers_of_one_row_have_one_winner_and_the_loser_is_told_the_numbers(graph: Graph) -> None:
    with pytest.raises(ExpectedVersionMismatch) as caught, graph.transaction() as tx:
        tx.update("Person", "ada", {"age": 1})
        with graph.transaction() as other:
            other.update("Person", "ada", {"age": 2})
    error = caught.value
    assert (error.table_key, error.expected, error.actual) == ("node:Person", 2, 3)
    assert error.as_dict()["context"] == {
        "table_key": "node:Person", "expected": 2, "actual": 3, "branch": "main"
    }  # fmt: skip
    assert error.code == "conflict.expected_version"
    assert error.retryable
    assert graph.table("Person").rows({"name": "ada"})[0]["age"] == 2


def test_two_appends_to_one_table_both_win(graph: Graph) -> None:
    with graph.transaction() as tx:
        tx.insert("Person", {"name": "cy"})
        tx.files.write("cy.txt", b"cy")
        with graph.transaction() as other:
            other.insert("Person", {"name": "dan"})
    assert names(graph) == ["ada", "bob", "cy", "dan"]
    assert published(graph)["node:Person"] == 4


@pytest.mark.parametrize("when", ["staged", "durable", "sealed"])
def test_the_loser_of_two_appends_does_not_write_its_rows_again(
    graph: Graph, disk_repo: Repository, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    disk_repo.gc(grace=0)
    before, written, others = lance_files(disk_repo), list[list[str]](), list[str]()
    write = RowStaging.write

    def counted(self: RowStaging, pin: Pin, data: Rows) -> list[str]:
        written.append(data["id"].to_pylist())
        return write(self, pin, data)

    def overtake() -> None:
        if not others:
            others.append("dan")
            with graph.transaction(actor="test") as other:
                other.insert("Person", {"name": "dan"})

    monkeypatch.setattr(RowStaging, "write", counted)
    tx = graph.transaction(actor="test")
    name = {"staged": "overtaken", "durable": "_candidate", "sealed": "_confirm"}[when]
    real = getattr(tx._tx, name)

    def late(*args: Any) -> Any:
        if written:
            overtake()
        return real(*args)

    monkeypatch.setattr(tx._tx, name, late)
    with tx:
        tx.insert("Person", {"name": "cy"})
    assert names(graph) == ["ada", "bob", "cy", "dan"]
    assert published(graph)["node:Person"] == 4
    assert written == [["cy"], ["dan"]], "each once"
    new = lance_files(disk_repo) - before
    assert sum("/data/" in key for key in new) == 2
    assert len(new) == 6, "what the first try staged besides is gone"
    assert not list(disk_repo.intents())
    kinds = [record.kind for record in disk_repo.recoveries()]
    assert kinds.count("rolled_back" if when == "sealed" else "aborted") == 1
    assert disk_repo.fsck().clean
    assert not [info.key for info in disk_repo.gc(grace=0).objects if info.key.startswith("tables/")]


def test_a_loser_that_cannot_go_on_takes_back_what_it_was_handed(
    graph: Graph, disk_repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx = graph.transaction(actor="test")
    seal = tx._tx._confirm

    def late(verdict: Any) -> Any:
        with graph.transaction(actor="test") as other:
            other.insert("Person", {"name": "dan", "email": "same"})
        return seal(verdict)

    monkeypatch.setattr(tx._tx, "_confirm", late)
    with pytest.raises(ConstraintViolations, match="email"), tx:
        tx.insert("Person", {"name": "cy", "email": "same"})
    assert names(graph) == ["ada", "bob", "dan"]
    assert not list(disk_repo.intents())
    assert disk_repo.fsck().clean
    objects = [info.key for info in disk_repo.gc(grace=0).objects]
    assert not [key for key in objects if key.startswith("tables/")]


def test_small_transactions_on_an_indexed_table_are_folded_and_indexed(
    graph: Graph, disk_repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fenceline.graph.staging.FOLD_AT", 4)
    monkeypatch.setattr("fenceline.graph.staging.FOLD_TO", 8)
    ensure_indices(graph)
    for n in range(40):
        with graph.transaction(actor="test") as tx:
            tx.insert("Person", {"name": f"p{n}", "age": n})
        pin = graph.at("main").snapshot.pin("node:Person")
        covered = min(index.fragments for index in pin.indices)
        assert pin.fragments - covered <= 5
    assert covered >= 2, "the index has followed"
    described = TableStore(disk_repo.native.objects).open(pin).describe_indices()
    assert all(len(each.segments) <= 8 for each in described)
    assert names(graph) == sorted(["ada", "bob", *(f"p{n}" for n in range(40))])
    with graph.transaction(actor="test") as tx:
        assert [tx.rows("Person", id=f"p{n}")[0]["age"] for n in range(40)] == list(range(40))
        assert tx.delete("Person", "p7") == 1
    with pytest.raises(ConstraintViolations), graph.transaction(actor="test") as tx:
        tx.insert("Person", {"name": "p8"})
    assert graph.table("Person").count({"name": "p7"}) == 0
    assert disk_repo.fsck().clean


def test_an_append_is_checked_again_on_what_the_other_left(graph: Graph) -> None:
    with pytest.raises(ConstraintViolations, match="email"), graph.transaction() as tx:
        tx.insert("Person", {"name": "cy", "email": "same"})
        with graph.transaction() as other:
            other.insert("Person", {"name": "dan", "email": "same"})
    assert names(graph) == ["ada", "bob", "dan"]


def test_tries_end_with_the_numbers(graph: Graph) -> None:
    with pytest.raises(ExpectedVersionMismatch) as caught, graph.transaction(tries=1) as tx:
        tx.insert("Person", {"name": "cy"})
        with graph.transaction() as other:
            other.insert("Person", {"name": "dan"})
    assert (caught.value.table_key, caught.value.expected, caught.value.actual) == ("node:Person", 2, 3)


def test_disjoint_tables_both_win_without_being_checked_again(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    with graph.transaction(tries=1) as tx:
        tx.insert("City", {"name": "Bari"})
        with graph.transaction() as other:
            other.insert("Person", {"name": "dan"})
    assert names(graph, "City") == ["Bari", "Rome"]
    assert names(graph) == ["ada", "bob", "dan"]


@pytest.mark.parametrize("first", ["edge", "delete"])
def test_an_edge_and_the_deletion_of_its_end_never_both_win(graph: Graph, first: str) -> None:
    def edge(tx: GraphTransaction) -> None:
        tx.insert_edge("Knows", "ada", "bob", id="new")

    def delete(tx: GraphTransaction) -> None:
        tx.delete("Person", "bob")

    winner, loser = (edge, delete) if first == "edge" else (delete, edge)
    with pytest.raises((ExpectedVersionMismatch, ConstraintViolations)) as caught, graph.transaction() as tx:
        loser(tx)
        with graph.transaction() as other:
            winner(other)
    if first == "edge":
        assert isinstance(caught.value, ExpectedVersionMismatch)
        assert caught.value.table_key == "edge:Knows"
        assert (names(graph), names(graph, "Knows")) == (["ada", "bob"], ["k1", "new"])
    else:
        assert isinstance(caught.value, ConstraintViolations)
        assert (names(graph), names(graph, "Knows")) == (["ada"], [])


def test_what_was_read_counts(graph: Graph) -> None:
    with pytest.raises(ExpectedVersionMismatch, match="node:Person"), graph.transaction() as tx:
        tx.insert("Note", {"text": f"{tx.count('Person')} people"})
        with graph.transaction() as other:
            other.insert("Person", {"name": "cy"})
    assert graph.table("Note").count() == 0


def test_files_that_both_wrote_conflict_as_files_do(graph: Graph, disk_repo: Repository) -> None:
    with pytest.raises(PublishConflict) as caught, graph.transaction() as tx:
        tx.insert("Person", {"name": "cy"})
        tx.files.write("a.txt", b"mine")
        with disk_repo.transaction("main") as other:
            other.write("a.txt", b"theirs")
    assert caught.value.paths == ("a.txt",)
    assert names(graph) == ["ada", "bob"]


def test_files_that_others_write_are_no_conflict(graph: Graph, disk_repo: Repository) -> None:
    with graph.transaction(tries=1) as tx:
        tx.insert("Person", {"name": "cy"})
        tx.files.write("a.txt", b"mine")
        with disk_repo.transaction("main") as other:
            other.write("b.txt", b"theirs")
    assert disk_repo.read("main", "a.txt") + disk_repo.read("main", "b.txt") == b"minetheirs"


def test_two_graphs_at_one_path(disk_repo: Repository) -> None:
    one, other = disk_repo.graph(), disk_repo.graph()
    begun = one._begin(None, None, "one", None)
    with pytest.raises(PublishConflict), begun as tx:
        tx.stat(one.place.manifest)
        one._create(tx, other_catalogue())
        other.init(SCHEMA)
    assert other.table("Person").count() == 0
    assert disk_repo.fsck().clean
    disk_repo.gc(grace=0)
    assert other.table("Person").count() == 0


def other_catalogue() -> Any:
    from fenceline.graph.schema import parse

    return parse("node Other { name: String @key }")
