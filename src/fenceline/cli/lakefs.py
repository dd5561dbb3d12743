"""`fenceline lakefs setup`: the fence hook on a branch of a lakeFS repository, installed and tried.

What needs lakeFS's client library is imported when the command runs: without lakeFS the command line does without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fenceline.cli.options import Json
from fenceline.cli.output import emit, say, short
from fenceline.errors import ContractError, NotFound
from fenceline.repo.lakefs.hook import HOOK_PATH
from fenceline.seams import Seams

if TYPE_CHECKING:
    from fenceline.repo.lakefs.client import Client
    from fenceline.repo.lakefs.setup import Plan

SCHEME = "lakefs://"


def setup(
    repository: Annotated[
        str, typer.Argument(metavar="REPOSITORY", help="Its name, or lakefs://NAME.", envvar="FENCELINE_REPO")
    ],
    branch: Annotated[
        str | None, typer.Option("--branch", "-b", help="The branch to set up.", show_default="the default branch")
    ] = None,
    create: Annotated[
        str | None, typer.Option("--create", metavar="STORAGE", help="Create it if there is none, with its data there.")
    ] = None,
    protect: Annotated[
        bool, typer.Option("--protect", help="Let nothing but merges change the branch: no upload, commit or reset.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without it, only show what would be done.")] = False,
    as_json: Json = False,
) -> None:
    """Install the fence hook on a branch of a lakeFS repository, and try that the server keeps it."""
    from fenceline.repo.lakefs import setup as work
    from fenceline.repo.lakefs.client import Client

    client = Client(_name(repository))
    if not client.exists():
        _create(client, create, yes=yes, as_json=as_json)
        if not yes:
            return
    target = branch or client.default_branch()
    plan = work.look(client, target)
    steps = list(_steps(plan, protect=protect))
    if yes:
        seams = Seams()
        work.sweep(client)
        if not plan.done:
            work.install(client, plan, seams)
        work.verify(client, target, seams)
        if protect:
            work.protect(client, target)
        plan = work.look(client, target)
    if as_json:
        emit({**_document(client, plan), "steps": steps, "done": yes, "verified": yes})
        return
    for step in steps:
        say(step)
    if yes:
        say(f"{target} of {client.repository} is fenced at {short(plan.head)}: tried with one wrong and one right head")
    else:
        say("this was a dry run: add --yes to do it and to try the fence", style="bold")


def _name(text: str) -> str:
    name = text.removeprefix(SCHEME).strip("/")
    if not name or "/" in name:
        raise ContractError(f"{text!r} names no lakeFS repository", hint="write its name, or lakefs://NAME")
    return name


def _create(client: Client, storage: str | None, *, yes: bool, as_json: bool) -> None:
    if storage is None:
        raise NotFound(
            f"{client.endpoint} has no repository {client.repository}",
            hint="add --create STORAGE, such as s3://bucket/prefix or local://name",
        )
    if yes:
        client.create(storage)
    elif as_json:
        emit({"repository": client.repository, "steps": [f"create it on {storage}"], "done": False})
    else:
        say(f"create {client.repository} on {storage}, then install the fence hook")
        say("this was a dry run: add --yes to do it", style="bold")


def _steps(plan: Plan, *, protect: bool) -> list[str]:
    if plan.hook is None:
        steps = [f"install {HOOK_PATH} on {plan.branch}, by merging a scratch branch"]
    elif plan.hook:
        steps = [f"{HOOK_PATH} is on {plan.branch} already"]
    else:
        steps = [f"replace the other {HOOK_PATH} on {plan.branch}, by merging a scratch branch"]
    if plan.protected:
        steps.append(f"{plan.branch} is protected already")
    elif protect:
        steps.append(f"protect {plan.branch}: no upload, commit or reset, only merges")
    else:
        steps.append(f"{plan.branch} is not protected: --protect closes resets by hand, which no hook sees")
    return steps


def _document(client: Client, plan: Plan) -> dict[str, object]:
    return {
        "endpoint": client.endpoint,
        "repository": client.repository,
        "branch": plan.branch,
        "head": plan.head,
        "hook": "installed" if plan.hook else "missing" if plan.hook is None else "other",
        "protected": plan.protected,
    }
