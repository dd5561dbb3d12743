"""What `fenceline doctor` checks of a lakeFS repository: that the server is there, and what its fence rests on.

It only reads. That the server really runs the hook is tried by `fenceline lakefs setup --yes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from fenceline.cli.finding import Finding
from fenceline.cli.output import counted
from fenceline.errors import FencelineError, StoreError
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.hook import STAGING_PREFIX, installed
from fenceline.repo.lakefs.repository import repository_name
from fenceline.repo.lakefs.setup import SCRATCH_PREFIX, is_protected

INTERNAL = "fenceline-"
MOST_BRANCHES = 50


def examine_lakefs(url: str) -> Iterator[Finding]:
    """Every check, as far as the server answers."""
    try:
        client = Client(repository_name(url))
        yield from _examine(client)
    except FencelineError as error:
        yield Finding("lakeFS", "fail", error.message, error.hint or "see the server's log")


def _examine(client: Client) -> Iterator[Finding]:
    server = client.server()
    policies = "" if server.policies is None else f", policies {', '.join(server.policies) or 'none'}"
    yield Finding("lakeFS", "ok", f"{server.endpoint}, version {server.version}, as {server.user}{policies}")
    if not client.exists():
        hint = f"fenceline lakefs setup {client.repository} --create STORAGE"
        yield Finding("repository", "fail", f"the server has no {client.repository}", hint)
        return
    yield Finding("repository", "ok", f"lakefs://{client.repository}")
    branches = list(islice((b.name for b in client.branches() if not b.name.startswith(INTERNAL)), MOST_BRANCHES))
    yield from hooks(client, branches)
    yield from protection(client)
    yield uncommitted(client)
    yield left_behind(client)


def hooks(client: Client, branches: list[str]) -> Iterator[Finding]:
    """A branch without the hook can be published to under `fence="serial"` only."""
    states = {branch: installed(client, branch) for branch in branches}
    missing = [branch for branch, state in states.items() if not state]
    for branch in missing:
        what = "has no fence hook" if states[branch] is None else "has another fence hook than this version's"
        yield Finding(
            f"hook on {branch}",
            "warn",
            f"{what}: steps refuse to publish to it, but for those with fence='serial', whose fence is soft: "
            "of two that publish at once both may win, and one is lost",
            f"fenceline lakefs setup {client.repository} --branch {branch} --yes",
        )
    if not missing:
        yield Finding("hook", "ok", f"on {', '.join(branches[:5])}{' and others' if len(branches) > 5 else ''}")


def protection(client: Client) -> Iterator[Finding]:
    branch = client.default_branch()
    step = f"fenceline lakefs setup {client.repository} --branch {branch} --protect --yes"
    try:
        patterns = client.protection()
    except StoreError as error:
        yield Finding("protection", "warn", f"cannot be read: {error.message}", "ask for fs:GetBranchProtectionRules")
        return
    if is_protected(patterns, branch):
        yield Finding("protection", "ok", f"only merges change {branch}")
    else:
        yield Finding("protection", "warn", f"{branch} can be reset and committed to by hand, past the fence", step)


def uncommitted(client: Client) -> Finding:
    """Whoever uploads to the branch itself stops every publication to it."""
    branch = client.default_branch()
    found = list(islice(client.uncommitted(branch), 1))
    if found:
        what = f"{branch} has uncommitted changes, such as {found[0].path}: every publication to it is refused"
        return Finding("uncommitted", "fail", what, "commit or reset them in lakeFS")
    return Finding("uncommitted", "ok", f"{branch} is clean")


def left_behind(client: Client) -> Finding:
    staging = sum(1 for _ in client.branches(STAGING_PREFIX))
    scratch = sum(1 for _ in client.branches(SCRATCH_PREFIX))
    if scratch:
        step = f"fenceline lakefs setup {client.repository} --yes removes it"
        return Finding("left behind", "warn", f"a setup died and left {counted(scratch, 'scratch ref')}", step)
    return Finding("left behind", "ok", f"{counted(staging, 'staging area')}; fenceline recover ends dead ones")
