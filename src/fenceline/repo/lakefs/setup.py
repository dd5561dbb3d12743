"""Installing the fence on a branch, and proving that the server keeps it: what `fenceline lakefs setup` does.

Everything goes through merges of scratch branches, so that it works on a protected branch too, and never shows
anything on the branch but the hook's file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fenceline.errors import ConfigError, ConflictError
from fenceline.repo.lakefs import hook
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.values import MergeEnd, MergeOutcome
from fenceline.seams import Seams

SCRATCH_PREFIX = "fenceline-setup-"
PROBE = "_fenceline_setup/probe"
NO_SUCH_HEAD = "0" * 64


@dataclass(frozen=True, slots=True)
class Plan:
    """What is there, and so what setup has to do."""

    branch: str
    head: str
    hook: bool | None
    """True: as this version installs it; False: another one; None: none."""
    protected: bool

    @property
    def done(self) -> bool:
        return self.hook is True


def look(client: Client, branch: str) -> Plan:
    head = client.head(branch)
    return Plan(branch, head, hook.installed(client, head), is_protected(client.protection(), branch))


def is_protected(patterns: tuple[str, ...], branch: str) -> bool:
    return any(fnmatchcase(branch, pattern) for pattern in patterns)


def install(client: Client, plan: Plan, seams: Seams) -> str:
    """Put the hook's file on the branch; the new head. Someone else's publication meanwhile: `ConflictError`."""
    with scratch(client, plan.head, seams) as source:
        client.put(source, hook.HOOK_PATH, hook.ACTION.encode())
        client.commit(source, "Install the fence hook")
        metadata = {hook.EXPECTED_HEAD: plan.head}
        outcome = client.merge(source, plan.branch, "Install Fenceline's fence hook", metadata)
        if outcome.commit is not None:
            return outcome.commit
        if outcome.end is MergeEnd.UNKNOWN and hook.installed(client, client.head(plan.branch)):
            return client.head(plan.branch)
        raise _not_installed(plan.branch, outcome)


def _not_installed(branch: str, outcome: MergeOutcome) -> ConflictError:
    return ConflictError(
        f"the fence hook was not installed on {branch}: {outcome.why}",
        hint="commit or reset uncommitted changes" if outcome.end is MergeEnd.DIRTY else "run setup again",
        branch=branch,
    )


def verify(client: Client, branch: str, seams: Seams) -> None:
    """On scratch branches that start at the branch's head, try a merge that must be refused and one that must pass."""
    head = client.head(branch)
    hook.require(client, client.repository, head)
    with scratch(client, head, seams) as source, scratch(client, head, seams) as target:
        client.put(source, PROBE, seams.ids.execution().encode())
        staged = client.commit(source, "Probe of the fence hook").id
        refused = client.merge(source, target, "Must be refused", {hook.EXPECTED_HEAD: NO_SUCH_HEAD})
        if refused.end is not MergeEnd.REFUSED:
            raise _not_fenced(client.repository, f"a merge onto a wrong head ended as {refused.end}", refused)
        passed = client.merge(source, target, "Must pass", {hook.EXPECTED_HEAD: head, hook.STAGED: staged})
        if passed.end is not MergeEnd.MERGED:
            raise _not_fenced(client.repository, f"a merge onto the right head ended as {passed.end}", passed)


def _not_fenced(repository: str, what: str, outcome: MergeOutcome) -> ConfigError:
    return ConfigError(
        f"lakeFS does not run the fence hook of {repository} as it must: {what} {outcome.why}".rstrip(),
        hint="the server needs actions.enabled=true and Lua hooks",
        repository=repository,
    )


def protect(client: Client, branch: str) -> None:
    """Add the branch to the protected ones; the other patterns stay."""
    patterns = client.protection()
    if not is_protected(patterns, branch):
        client.set_protection((*patterns, branch))


@contextmanager
def scratch(client: Client, commit: str, seams: Seams) -> Iterator[str]:
    name = f"{SCRATCH_PREFIX}{seams.ids.execution()}"
    client.create_branch(name, commit, hidden=True)
    try:
        yield name
    finally:
        client.delete_branch(name)


def leftovers(client: Client) -> list[str]:
    """Scratch branches of a setup that was killed."""
    return [branch.name for branch in client.branches(SCRATCH_PREFIX)]


def sweep(client: Client) -> int:
    """Delete what killed setups left; how many branches. A setup that runs at this moment fails and can be repeated."""
    found = leftovers(client)
    return sum(client.delete_branch(name) for name in found)
