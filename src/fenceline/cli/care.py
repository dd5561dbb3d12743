"""Looking after a repository: init, recover, recoveries, intents, gc, fsck."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from typing import Annotated

import typer

from fenceline.api import open_repository, store_at
from fenceline.cli import documents, progress
from fenceline.cli.failure import PROBLEMS_FOUND
from fenceline.cli.opening import reading, unswept, writing
from fenceline.cli.options import Actor, Json, Limit, Repo
from fenceline.cli.output import Column, counted, emit, moment, remark, say, short, size, span, table
from fenceline.repo.native.fsck import Report
from fenceline.repo.native.gc import GRACE_DEFAULT, KEEP_DEFAULT, Plan, Retention
from fenceline.txn.intent import EndKind
from fenceline.txn.recover import Swept

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def init(repo: Repo = ".", as_json: Json = False) -> None:
    """Create a repository; where one exists already, it is left as it is."""
    existed = store_at(repo).stat("format.json") is not None
    opened = open_repository(repo, create=True)
    if as_json:
        emit({"url": opened.url, "repository": opened.id, "created": not existed})
    elif existed:
        say(f"{opened.url} is a repository already")
    else:
        say(f"repository created at {opened.url}, with the branch main")


# --- recovery ---------------------------------------------------------------------------------------------------


def recover(
    resolve: Annotated[
        str | None,
        typer.Option("--resolve", metavar="EXECUTION", help="End an intent in quarantine: give it up for good."),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="With --resolve: look at it once more instead.")] = False,
    actor: Actor = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Finish what dead writers left, now."""
    if retry and resolve is None:
        raise typer.BadParameter("--retry needs --resolve EXECUTION")
    opened = unswept(repo)
    if resolve is None:
        swept = list(opened.recover())
    else:
        swept = [opened.resolve_intent(resolve, "retry" if retry else "roll_back", actor=actor)]
    if as_json:
        emit([_swept_document(each) for each in swept])
    elif not swept:
        say("nothing to recover")
    else:
        columns = (
            Column("execution", fixed=True),
            Column("branch"),
            Column("class", fixed=True),
            Column("ending", style="bold", fixed=True),
            Column("why"),
        )
        table(columns, ((s.execution, s.branch, s.found, s.ending, s.why) for s in swept))


def recoveries(
    kind: Annotated[EndKind | None, typer.Option("--kind", help="Only those that ended this way.")] = None,
    limit: Limit = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """List how transactions ended, newest first."""
    records = (r for r in reversed(list(reading(repo).recoveries())) if kind in (None, r.kind))
    shown = list(islice(records, limit))
    if as_json:
        emit([asdict(record) for record in shown])
    elif not shown:
        say("no transaction has ended" if kind is None else f"no transaction has ended as {kind}")
    else:
        columns = (
            Column("execution", fixed=True),
            Column("kind", style="bold", fixed=True),
            Column("branch"),
            Column("entry", right=True),
            Column("commit", style="yellow", fixed=True),
            Column("time", fixed=True),
            Column("for"),
            Column("why"),
        )
        table(
            columns,
            (
                (r.execution, r.kind, r.branch, r.entry, short(r.commit), moment(r.time), r.recovered_for, r.why)
                for r in shown
            ),
        )


def intents(repo: Repo = ".", as_json: Json = False) -> None:
    """List transactions that have not ended: running, left by the dead, or in quarantine."""
    found = list(reading(repo).intents())
    if as_json:
        emit([asdict(status) for status in found])
    elif not found:
        say("no unfinished transaction")
    else:
        columns = (
            Column("execution", fixed=True),
            Column("state", style="bold", fixed=True),
            Column("branch"),
            Column("kind"),
            Column("actor"),
            Column("age", right=True),
            Column("owner"),
            Column("why"),
        )
        owners = {True: "gone", False: "alive", None: None}
        table(
            columns,
            (
                (
                    i.execution,
                    i.state,
                    i.branch,
                    i.kind,
                    i.actor,
                    None if i.age is None else span(i.age),
                    owners[i.expired],
                    i.why,
                )
                for i in found
            ),
        )


def _swept_document(swept: Swept) -> dict[str, object]:
    return {
        "execution": swept.execution,
        "branch": swept.branch,
        "class": swept.found,
        "ending": swept.ending,
        "why": swept.why,
    }


# --- garbage collection -----------------------------------------------------------------------------------------


def gc(
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", help="The last N entries of every branch stay readable.")
    ] = KEEP_DEFAULT,
    expire: Annotated[
        bool, typer.Option("--expire", help="Also drop the content of commits behind them; the log keeps them.")
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="TIME", help="Drop only content this old: 45s, 10m, 12h, 30d, 4w. Implies --expire."
        ),
    ] = None,
    grace: Annotated[
        float,
        typer.Option("--grace", metavar="SECONDS", min=0, help="How long to wait between announcing and deleting."),
    ] = GRACE_DEFAULT,
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it, only show what would go and why.")] = False,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Delete what nothing reaches any more; a dry run unless --yes is given."""
    age = None if older_than is None else seconds(older_than)
    retention = Retention(keep=keep, expire=expire or age is not None, older_than=age)
    if yes:
        opened = writing(repo, as_json)
        with progress.waiting(f"collecting: announced, then {grace:g} s for writers to object, then deleted"):
            plan = opened.gc(retention, grace=grace)
    else:
        with progress.waiting("looking for what nothing reaches"):
            plan = reading(repo).plan_gc(retention)
    if as_json:
        emit(documents.plan(plan, deleted=yes))
    else:
        _explain(plan, deleted=yes)


def seconds(text: str) -> float:
    """`45s`, `10m`, `12h`, `30d`, `4w` as seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if not found:
        raise typer.BadParameter(f"{text!r} is not a length of time; write 45s, 10m, 12h, 30d or 4w")
    return float(found[1]) * _SECONDS[found[2]]


def _explain(plan: Plan, *, deleted: bool) -> None:
    kept = f"{counted(plan.kept_objects, 'object')} ({size(plan.kept_bytes)}) stay"
    if not plan.objects and not plan.expired:
        say(f"nothing to delete; {kept}")
        return
    verb = "deleted" if deleted else "would be deleted"
    say(f"{counted(len(plan.objects), 'object')} ({size(plan.bytes)}) {verb}; {kept}")
    table((Column("reason"), Column("objects", right=True)), sorted(plan.reasons.items()))
    areas = sorted(documents.areas(plan).items())
    columns = (Column("area"), Column("objects", right=True), Column("size", right=True))
    table(columns, ((area, found["objects"], size(found["bytes"])) for area, found in areas))
    if plan.expired:
        say(f"commits of the log whose content goes: {len(plan.expired)}; the log goes on showing them")
    if plan.dropped:
        say(f"commits that nothing reaches: {len(plan.dropped)}; they go altogether")
    if not deleted:
        say("this was a dry run: add --yes to delete", style="bold")


# --- verification -----------------------------------------------------------------------------------------------


def fsck(
    content: Annotated[
        bool, typer.Option("--content/--no-content", help="Read every byte, or only look that every object is there.")
    ] = True,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Verify every reachable object; exits with 10 if any is broken."""
    opened = reading(repo)
    with progress.counting("verifying") as step:
        report = opened.fsck(content=content, step=step)
    if as_json:
        emit({"clean": report.clean, **asdict(report)})
    else:
        _show_report(report)
    if not report.clean:
        raise typer.Exit(PROBLEMS_FOUND)


def _show_report(report: Report) -> None:
    seen = ", ".join(_seen(report))
    for note in report.notes:
        remark(f"note: {note}")
    if report.clean:
        say(f"clean: {seen}", style="green")
        return
    say(f"{counted(len(report.problems), 'problem')} in {seen}", style="red")
    columns = (Column("address"), Column("what", style="bold"), Column("breaks"))
    table(columns, ((p.address, p.what, "; ".join(p.breaks) or "nothing reachable") for p in report.problems))


def _seen(report: Report) -> Iterable[str]:
    yield counted(report.commits, "commit")
    yield counted(report.ranges, "tree range")
    yield counted(report.files, "file")
    yield size(report.bytes)
