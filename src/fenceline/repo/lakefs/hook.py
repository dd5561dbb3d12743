"""The fence that the server checks: a pre-merge hook, kept as a file in the repository itself.

lakeFS decides a merge and moves the branch together (it tries again from the new head when the branch moved
meanwhile), and runs the hook in between. So what the hook compares is the very head that the merge replaces. The file
is read from the commit that is merged: whoever stages must see that it is there (`require`).
"""

from __future__ import annotations

from typing import Protocol

from fenceline.errors import NotFound
from fenceline.repo.lakefs.errors import HookMissing

ACTIONS = "_lakefs_actions/"
HOOK_PATH = f"{ACTIONS}fenceline.yaml"

STAGING_PREFIX = "fenceline-staging-"
"""Branches of this name hold what is not published: without the metadata below, no merge of them passes."""

EXPECTED_HEAD = "fenceline.expected_head"
"""Merge metadata: the commit that must be the target's head when the merge replaces it."""
STAGED = "fenceline.staged"
"""Merge metadata: the commit that must be the source's head, so that nothing added since is published."""

SCRIPT = f"""\
local metadata = action.commit.metadata
local expected = metadata["{EXPECTED_HEAD}"]
local staged = metadata["{STAGED}"]
local prefix = "{STAGING_PREFIX}"
if expected == nil then
  if string.sub(action.merge_source, 1, string.len(prefix)) == prefix then
    error("fenceline: " .. action.merge_source .. " is not published; only the runtime may merge it")
  end
  return
end
if action.commit.parents[1] ~= expected then
  error("fenceline: expected head " .. expected .. ", found " .. action.commit.parents[1])
end
if staged ~= nil and action.source_ref ~= staged then
  error("fenceline: expected staged commit " .. staged .. ", found " .. action.source_ref)
end
"""

ACTION = (
    "name: fenceline\n"
    "description: Publishes only onto the head that was expected. Installed by `fenceline lakefs setup`; keep it.\n"
    "on:\n"
    "  pre-merge:\n"
    "hooks:\n"
    "  - id: fenceline_expected_head\n"
    "    type: lua\n"
    "    properties:\n"
    "      script: |\n"
) + "".join(f"        {line}\n" for line in SCRIPT.splitlines())


class Reads(Protocol):
    """As much of the client as is needed here."""

    def read(self, ref: str, path: str) -> bytes: ...


def installed(client: Reads, ref: str) -> bool | None:
    """True if the hook is there as we know it, False if it is another one, None if there is none."""
    try:
        return client.read(ref, HOOK_PATH) == ACTION.encode()
    except NotFound:
        return None


def require(client: Reads, repository: str, ref: str) -> None:
    """Raise unless a merge of this commit will be fenced by the server."""
    state = installed(client, ref)
    if state:
        return
    found = "has no fence hook" if state is None else f"has another {HOOK_PATH} than this version installs"
    raise HookMissing(
        f"commit {ref[:12]} of {repository} {found}",
        hint=f"fenceline lakefs setup {repository}",
        repository=repository,
        commit=ref,
    )
