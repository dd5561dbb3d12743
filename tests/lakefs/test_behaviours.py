"""What Fenceline relies on of a lakeFS server, one by one, on the stand-in and on a real one: neither may drift."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from fenceline.errors import AccessDenied, AlreadyExists, FencelineError, NotFound, StoreError
from fenceline.repo.lakefs import hook
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.errors import BranchProtected, NothingToCommit
from fenceline.repo.lakefs.sdk import Access
from fenceline.repo.lakefs.values import Change, ChangeKind, MergeEnd
from fenceline.testing.lakefs_standin import CallFault, StandIn

NOBODY = "0" * 64


def staged(client: Client, name: str, files: dict[str, bytes], source: str = "main") -> str:
    """A branch with a commit of these files; the commit."""
    client.create_branch(name, source)
    for path, data in files.items():
        client.put(name, path, data)
    return client.commit(name, f"Stage {name}").id


def published(client: Client, files: dict[str, bytes], name: str) -> str:
    staged(client, name, files)
    outcome = client.merge(name, "main", "Publish", {})
    assert outcome.commit is not None, outcome
    return outcome.commit


def fenced(client: Client) -> str:
    """Main with the hook's file on it; its head."""
    return published(client, {hook.HOOK_PATH: hook.ACTION.encode()}, "hook")


def eventually(what: Callable[[], bool], seconds: float = 10.0) -> None:
    """The real server keeps a changed protection only after a while, and tells nobody when."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def refused(call: Callable[[], object], kind: type[FencelineError]) -> bool:
    try:
        call()
    except kind:
        return True
    return False


# --- repositories, branches, tags -------------------------------------------------------------------------------


def test_a_repository_is_created_once(client: Client) -> None:
    assert client.exists()
    assert client.default_branch() == "main"
    with pytest.raises(AlreadyExists):
        client.create("local://elsewhere/x")


def test_a_repository_that_is_not_there(access: Access, repository_name: str) -> None:
    nothing = Client(repository_name, access)
    assert not nothing.exists()
    with pytest.raises(NotFound, match="repository not found"):
        nothing.head("main")
    nothing.close()


def test_wrong_keys_are_refused(access: Access, repository_name: str) -> None:
    stranger = Client(repository_name, Access(access.endpoint, "nobody", "wrong"))
    with pytest.raises(AccessDenied):
        stranger.exists()
    stranger.close()


def test_a_branch_name_is_taken_once(client: Client) -> None:
    first = client.head("main")
    client.create_branch("work", first)
    assert client.head("work") == first
    with pytest.raises(AlreadyExists):
        client.create_branch("work", first)
    with pytest.raises(NotFound):
        client.create_branch("other", NOBODY)


def test_a_deleted_branch_is_gone_and_its_commits_are_not(client: Client) -> None:
    commit = staged(client, "work", {"a": b"1"})
    assert client.delete_branch("work")
    assert not client.delete_branch("work")
    assert client.find_branch("work") is None
    assert client.read(commit, "a") == b"1"
    client.create_branch("again", commit)


def test_the_default_branch_cannot_be_deleted(client: Client) -> None:
    with pytest.raises(AccessDenied):
        client.delete_branch("main")


def test_branches_are_listed_by_prefix_hidden_ones_too(client: Client) -> None:
    for name in ("a-1", "a-2", "b-1"):
        client.create_branch(name, "main", hidden=name == "a-2")
    assert [branch.name for branch in client.branches("a-")] == ["a-1", "a-2"]
    assert [branch.name for branch in client.branches()] == ["a-1", "a-2", "b-1", "main"]


def test_a_tag_is_written_once(client: Client) -> None:
    first = client.head("main")
    later = published(client, {"a": b"1"}, "work")
    client.create_tag("v1", first)
    with pytest.raises(AlreadyExists):
        client.create_tag("v1", later)
    assert [(tag.name, tag.commit) for tag in client.tags()] == [("v1", first)]
    assert client.delete_tag("v1")
    assert not client.delete_tag("v1")
    assert client.find_tag("v1") is None


# --- objects ----------------------------------------------------------------------------------------------------


def test_an_object_comes_back_whole_and_in_ranges(client: Client) -> None:
    data = bytes(range(256)) * 40
    put = client.put("main", "dir/Ünïcode +&%.bin", data, {"mode": "493"})
    assert client.read("main", "dir/Ünïcode +&%.bin") == data
    assert client.read("main", "dir/Ünïcode +&%.bin", 10, 5) == data[10:15]
    assert client.read("main", "dir/Ünïcode +&%.bin", 10_000) == data[10_000:]
    found = client.stat("main", "dir/Ünïcode +&%.bin")
    assert found is not None
    assert (found.size, found.checksum, found.metadata) == (len(data), put.checksum, {"mode": "493"})
    assert client.stat("main", "nothing") is None
    with pytest.raises(NotFound):
        client.read("main", "nothing")


def test_an_empty_object(client: Client) -> None:
    client.put("main", "empty", b"")
    assert client.read("main", "empty") == b""
    found = client.stat("main", "empty")
    assert found is not None
    assert found.size == 0


def test_uncommitted_objects_show_on_the_branch_only(client: Client) -> None:
    head = client.head("main")
    client.put("main", "a", b"1")
    assert client.stat(head, "a") is None
    assert client.head("main") == head
    assert list(client.uncommitted("main")) == [Change("a", ChangeKind.ADDED, 1)]


def test_listing_pages_through_everything(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fenceline.repo.lakefs.objects.PAGE", 3)
    paths = sorted([f"data/{n}" for n in range(8)] + ["data/sub/x", "data/sub/y", "else"])
    for path in paths:
        client.put("main", path, path.encode())
    assert [found.path for found in client.objects("main")] == paths
    assert [found.path for found in client.objects("main", "data/sub/")] == ["data/sub/x", "data/sub/y"]
    assert list(client.children("main", "data/")) == [*[f"data/{n}" for n in range(8)], "data/sub/"]
    assert list(client.children("main")) == ["data/", "else"]


def test_deleting_in_a_batch_skips_what_is_not_there(client: Client) -> None:
    published(client, {"a": b"1", "b": b"2"}, "work")
    client.delete("main", ["a", "nothing"])
    assert [found.path for found in client.objects("main")] == ["b"]
    assert [(change.path, change.kind) for change in client.uncommitted("main")] == [("a", ChangeKind.REMOVED)]


def test_uploading_to_a_branch_that_is_gone(client: Client) -> None:
    with pytest.raises(NotFound):
        client.put("gone", "a", b"1")


# --- commits ----------------------------------------------------------------------------------------------------


def test_a_commit_carries_metadata_and_one_parent(client: Client) -> None:
    before = client.head("main")
    client.put("main", "a", b"1")
    commit = client.commit("main", "One", {"fenceline.txn": "t1"})
    assert commit.parents == (before,)
    assert client.head("main") == commit.id
    assert client.commit_info(commit.id).metadata == {"fenceline.txn": "t1"}
    assert client.commit_info("main").message == "One"
    assert client.commit_info("main~1").id == before


def test_nothing_to_commit_is_refused(client: Client) -> None:
    with pytest.raises(NothingToCommit):
        client.commit("main", "Nothing")


def test_the_same_content_again_is_nothing_to_commit(client: Client) -> None:
    client.put("main", "a", b"1")
    first = client.commit("main", "One")
    client.put("main", "a", b"1")
    assert list(client.uncommitted("main")) == []
    with pytest.raises(NothingToCommit):
        client.commit("main", "Same")
    assert client.head("main") == first.id


def test_a_tree_id_speaks_of_uploads_not_of_content(client: Client) -> None:
    """Equal ids mean equal content; the same content uploaded twice has two."""
    for name in ("one", "two"):
        staged(client, name, {"a": b"1"})
    assert client.commit_info("one").tree != client.commit_info("two").tree
    assert list(client.diff("one", "two")) == []
    client.create_branch("three", "one")
    assert client.commit_info("three").tree == client.commit_info("one").tree


def test_a_commit_that_is_not_there(client: Client) -> None:
    with pytest.raises(NotFound):
        client.commit_info(NOBODY)


def test_the_log_goes_back_to_where_it_must_stop(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fenceline.repo.lakefs.objects.PAGE", 2)
    made = [client.head("main")]
    for n in range(5):
        client.put("main", "a", str(n).encode())
        made.append(client.commit("main", str(n)).id)
    assert [commit.id for commit in client.log("main")] == made[::-1]
    assert [commit.id for commit in client.log("main", stop_at=made[2])] == made[:1:-1]
    assert [commit.id for commit in client.log(made[3], limit=2)] == [made[3], made[2]]


def test_a_diff_says_what_right_has_other_than_left(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fenceline.repo.lakefs.objects.PAGE", 2)
    left = published(client, {"a": b"1", "b": b"2", "c/d": b"3"}, "left")
    client.put("main", "a", b"11")
    client.put("main", "e", b"5")
    client.delete("main", ["c/d"])
    right = client.commit("main", "Right").id
    changed = [
        Change("a", ChangeKind.CHANGED, 2),
        Change("c/d", ChangeKind.REMOVED, 1),
        Change("e", ChangeKind.ADDED, 1),
    ]
    assert list(client.diff(left, right)) == changed
    assert list(client.diff(left, right, "c/")) == changed[1:2]
    assert list(client.diff(left, left)) == []


# --- merge ------------------------------------------------------------------------------------------------------


def test_a_squash_merge_has_the_old_head_as_its_only_parent(client: Client) -> None:
    before = client.head("main")
    staged(client, "work", {"a": b"1"})
    outcome = client.merge("work", "main", "Publish", {"fenceline.txn": "t1"})
    assert outcome.end is MergeEnd.MERGED
    commit = client.commit_info("main")
    assert (outcome.commit, commit.parents) == (commit.id, (before,))
    assert commit.metadata["fenceline.txn"] == "t1"
    assert client.read("main", "a") == b"1"


def test_without_squash_the_source_is_a_parent_too(client: Client) -> None:
    before = client.head("main")
    commit = staged(client, "work", {"a": b"1"})
    client.merge("work", "main", "Publish", {}, squash=False)
    assert client.commit_info("main").parents == (before, commit)


def test_a_merge_of_nothing_new_is_refused_unless_asked_for(client: Client) -> None:
    before = client.head("main")
    client.create_branch("work", before)
    assert client.merge("work", "main", "Nothing", {}).end is MergeEnd.UNCHANGED
    assert client.head("main") == before
    outcome = client.merge("work", "main", "A mark", {}, allow_empty=True)
    assert outcome.end is MergeEnd.MERGED
    assert client.commit_info("main").parents == (before,)
    assert client.commit_info("main").tree == client.commit_info(before).tree


def test_a_second_merge_of_the_same_branch_passes_without_a_fence(client: Client) -> None:
    """Squashed, the source stays no ancestor: what a lost answer must never be met with is to merge again."""
    staged(client, "work", {"a": b"1"})
    first = client.merge("work", "main", "Publish", {})
    second = client.merge("work", "main", "Publish", {})
    assert (first.end, second.end) == (MergeEnd.MERGED, MergeEnd.MERGED)
    assert first.commit != second.commit
    assert client.commit_info("main").tree == client.commit_info("main~1").tree


def test_a_merge_onto_uncommitted_changes_is_refused(client: Client) -> None:
    staged(client, "work", {"a": b"1"})
    before = client.head("main")
    client.put("main", "b", b"2")
    assert client.merge("work", "main", "Publish", {}).end is MergeEnd.DIRTY
    assert client.head("main") == before


def test_a_merge_ignores_what_is_uncommitted_on_its_source(client: Client) -> None:
    staged(client, "work", {"a": b"1"})
    client.put("work", "late", b"2")
    assert client.merge("work", "main", "Publish", {}).end is MergeEnd.MERGED
    assert client.stat("main", "late") is None


def test_disjoint_changes_merge_and_the_same_path_conflicts(client: Client) -> None:
    base = client.head("main")
    for name, files in (("one", {"a": b"1"}), ("two", {"b": b"2"}), ("three", {"a": b"3"})):
        staged(client, name, files, base)
    assert client.merge("one", "main", "One", {}).end is MergeEnd.MERGED
    assert client.merge("two", "main", "Two", {}).end is MergeEnd.MERGED
    before = client.head("main")
    assert client.merge("three", "main", "Three", {}).end is MergeEnd.CONFLICT
    assert client.head("main") == before
    assert [(found.path, client.read("main", found.path)) for found in client.objects("main")] == [
        ("a", b"1"),
        ("b", b"2"),
    ]


def test_a_deleted_source_cannot_be_merged(client: Client) -> None:
    staged(client, "work", {"a": b"1"})
    client.delete_branch("work")
    with pytest.raises(NotFound):
        client.merge("work", "main", "Publish", {})
    with pytest.raises(NotFound):
        client.merge("main", "gone", "Publish", {})


# --- the hook -----------------------------------------------------------------------------------------------------


def test_the_hook_lets_pass_only_the_expected_head(client: Client) -> None:
    head = fenced(client)
    staged(client, "work", {"a": b"1"})
    for wrong in (NOBODY, client.commit_info(head).parents[0]):
        outcome = client.merge("work", "main", "Publish", {hook.EXPECTED_HEAD: wrong})
        assert outcome.end is MergeEnd.REFUSED
        assert f"expected head {wrong}, found {head}" in outcome.why
    assert client.head("main") == head
    outcome = client.merge("work", "main", "Publish", {hook.EXPECTED_HEAD: head})
    assert (outcome.end, outcome.commit) == (MergeEnd.MERGED, client.head("main"))


def test_the_hook_refuses_the_second_merge_of_the_same_branch(client: Client) -> None:
    head = fenced(client)
    staged(client, "work", {"a": b"1"})
    assert client.merge("work", "main", "Publish", {hook.EXPECTED_HEAD: head}).end is MergeEnd.MERGED
    assert client.merge("work", "main", "Publish", {hook.EXPECTED_HEAD: head}).end is MergeEnd.REFUSED


def test_the_hook_refuses_what_was_added_after_staging(client: Client) -> None:
    head = fenced(client)
    sealed = staged(client, "work", {"a": b"1"})
    client.put("work", "b", b"2")
    client.commit("work", "Late")
    metadata = {hook.EXPECTED_HEAD: head, hook.STAGED: sealed}
    outcome = client.merge("work", "main", "Publish", metadata)
    assert outcome.end is MergeEnd.REFUSED
    assert f"expected staged commit {sealed}" in outcome.why


def test_the_hook_lets_others_merge_but_not_what_is_staged(client: Client) -> None:
    fenced(client)
    staged(client, "feature", {"a": b"1"})
    staged(client, f"{hook.STAGING_PREFIX}x", {"b": b"2"})
    assert client.merge("feature", "main", "By hand", {}).end is MergeEnd.MERGED
    assert client.merge(f"{hook.STAGING_PREFIX}x", "main", "By hand", {}).end is MergeEnd.REFUSED


def test_the_hook_guards_every_branch(client: Client) -> None:
    head = fenced(client)
    client.create_branch("dev", head)
    staged(client, "work", {"a": b"1"})
    assert client.merge("work", "dev", "Publish", {hook.EXPECTED_HEAD: NOBODY}).end is MergeEnd.REFUSED
    assert client.merge("work", "dev", "Publish", {hook.EXPECTED_HEAD: head}).end is MergeEnd.MERGED


def test_the_hook_is_read_from_the_source_so_a_source_without_it_is_not_fenced(client: Client) -> None:
    """Why staging refuses an input commit that lacks the hook."""
    before = client.head("main")
    fenced(client)
    staged(client, "work", {"a": b"1"}, before)
    assert client.merge("work", "main", "Publish", {hook.EXPECTED_HEAD: NOBODY}).end is MergeEnd.MERGED


# --- reset and protection -----------------------------------------------------------------------------------------


def test_a_hard_reset_asks_nobody(client: Client) -> None:
    head = fenced(client)
    later = published(client, {"a": b"1"}, "work")
    client.hard_reset("main", head)
    assert client.head("main") == head
    client.hard_reset("main", later)
    assert client.head("main") == later
    client.put("main", "b", b"2")
    client.hard_reset("main", head)
    assert [change.path for change in client.uncommitted("main")] == ["b"]


def test_a_protected_branch_takes_merges_only(client: Client) -> None:
    head = fenced(client)
    staged(client, "work", {"a": b"1"})
    client.set_protection(["main"])
    assert client.protection() == ("main",)
    eventually(lambda: refused(lambda: client.hard_reset("main", head), BranchProtected))
    eventually(lambda: refused(lambda: client.put("main", "b", b"2"), BranchProtected))
    with pytest.raises(BranchProtected):
        client.commit("main", "Direct")
    with pytest.raises(BranchProtected):
        client.delete("main", [hook.HOOK_PATH])
    client.put("work", "c", b"3")
    assert client.merge("work", "main", "Publish", {hook.EXPECTED_HEAD: client.head("main")}).end is MergeEnd.MERGED


def test_protection_is_slow(client: Client) -> None:
    """Right after it was set, a write that warmed the server's cache may still pass: nothing rests on it."""
    client.put("main", "a", b"1")
    client.set_protection(["mai*"])
    client.put("main", "b", b"2")
    eventually(lambda: refused(lambda: client.put("main", "c", b"3"), BranchProtected))
    client.set_protection([])
    eventually(lambda: not refused(lambda: client.put("main", "d", b"4"), BranchProtected))


# --- a merge under way --------------------------------------------------------------------------------------------

WAITS = """\
name: waits
on:
  pre-merge:
hooks:
  - id: waits
    type: lua
    properties:
      script: |
        local lakefs = require("lakefs")
        lakefs.create_tag(action.repository_id, action.commit.parents[1], "inside")
        for _ = 1, 100000 do
          local code = lakefs.stat_object(action.repository_id, "signal", "go")
          if code == 200 then return end
        end
        error("nobody said go")
"""


class UnderWay:
    """A merge that the server has decided and not carried out: held there by a hook, or by the stand-in itself."""

    def __init__(self, client: Client, standin: StandIn | None) -> None:
        self._client, self._standin = client, standin
        self.head = fenced(client)
        files = {"a": b"1"} if standin else {"a": b"1", f"{hook.ACTIONS}waits.yaml": WAITS.encode()}
        staged(client, "work", files)
        client.create_branch("signal", "main")
        if standin:
            standin.inject(CallFault("merge", 1, "hang_inside"))
        self._pool = ThreadPoolExecutor(1)
        self._ending = self._pool.submit(self._merge)
        if standin:
            assert standin.hanging.wait(10)
        else:
            eventually(lambda: client.find_tag("inside") is not None)

    def _merge(self) -> MergeEnd | None:
        try:
            return self._client.merge("work", "main", "Publish", {hook.EXPECTED_HEAD: self.head}).end
        except NotFound:
            return None

    def go_on(self) -> MergeEnd | None:
        """How it ended; None if it found no source."""
        if self._standin:
            self._standin.release()
        else:
            self._client.put("signal", "go", b"")
        with self._pool:
            return self._ending.result(20)


@pytest.fixture
def under_way(client: Client, request: pytest.FixtureRequest) -> UnderWay:
    real = request.node.callspec.params["access"] == "real"
    return UnderWay(client, None if real else request.getfixturevalue("standin"))


def test_a_merge_under_way_lands_although_its_source_was_deleted(client: Client, under_way: UnderWay) -> None:
    """Deleting alone is no fence yet."""
    client.delete_branch("work")
    assert client.head("main") == under_way.head
    assert under_way.go_on() is MergeEnd.MERGED
    assert client.read("main", "a") == b"1"


def test_a_merge_under_way_never_lands_once_merges_were_settled(client: Client, under_way: UnderWay) -> None:
    client.delete_branch("work")
    client.settle_merges("main")
    assert client.head("main") == under_way.head
    assert under_way.go_on() is None
    assert client.head("main") == under_way.head
    client.settle_merges("main")


def test_settling_on_a_branch_with_uncommitted_changes_fails_closed(client: Client) -> None:
    client.put("main", "a", b"1")
    with pytest.raises(StoreError, match="cannot be settled"):
        client.settle_merges("main")
