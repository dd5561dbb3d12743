"""Small worlds worth exploring. Small rather than clever: each has just the actors that one story needs."""

from __future__ import annotations

from dataclasses import dataclass

from .world import Body, Configuration, Spec

BOTH: tuple[Body, ...] = ("changes", "no-op")


def attempt(
    name: str, txn: str = "T", *, step: str = "A", epoch: int = 0, bodies: tuple[Body, ...] = ("changes",), **more: str
) -> Spec:
    """One process on an attempt of a step; the digit in its name is the attempt's number."""
    number = int("".join(c for c in name if c.isdigit()))
    touches = frozenset(more.get("touches", step.lower()))
    serial = more.get("fence") == "serial"
    return Spec(name, txn, touches, step, number, epoch, bodies, more.get("after"), rebase=not serial, serial=serial)


def direct(name: str, key: str | None = None, touches: str = "d") -> Spec:
    return Spec(name, key, frozenset(touches))


CONFIGURATIONS = {
    each.name: each
    for each in [
        # --- one step, retried ----------------------------------------------------------------------------------
        Configuration("a retry of the same txn", (attempt("a1"), attempt("a2")), sweepers=1, sweeps=2, unknown=True),
        Configuration(
            "the same attempt twice",
            (attempt("a1", bodies=BOTH), attempt("a1x", bodies=BOTH)),
            sweepers=1,
            unknown=True,
        ),
        Configuration(
            "the same attempt with two codes",
            (attempt("a1", "T1", bodies=BOTH), attempt("a1x", "T2", bodies=BOTH)),
            sweepers=1,
        ),
        Configuration(
            "a retry with old and new code",
            (attempt("a1", "T1"), attempt("a2", "T1"), attempt("a2x", "T2")),
            unknown=True,
        ),
        Configuration(
            "a retry with old and new code, no-ops",
            (attempt("a1", "T1", bodies=BOTH), attempt("a2", "T1", bodies=BOTH), attempt("a2x", "T2", bodies=BOTH)),
        ),
        Configuration(
            "a retry with old and new code, swept",
            (attempt("a1", "T1"), attempt("a2", "T1"), attempt("a2x", "T2")),
            sweepers=1,
            full=True,
        ),
        Configuration(
            "code changed and changed back",
            (attempt("a1", "T1", bodies=BOTH), attempt("a2", "T2", bodies=BOTH), attempt("a3", "T1", bodies=BOTH)),
        ),
        Configuration(
            "a forced rerun",
            (attempt("a1"), attempt("a1x"), attempt("a1y", "T+1", epoch=1)),
            sweepers=1,
            operator=("force A",),
        ),
        # --- others on the branch -------------------------------------------------------------------------------
        Configuration(
            "a retry beside a colleague",
            (attempt("a1", bodies=BOTH), attempt("a2", bodies=BOTH)),
            foreign="F",
            sweepers=1,
        ),
        Configuration("a colleague in the way", (attempt("a1"), attempt("a2")), foreign="X", sweepers=1),
        Configuration("two colleagues", (attempt("a1"), attempt("a2")), foreign="FX", sweepers=1, full=True),
        Configuration(
            "three attempts beside a colleague",
            (attempt("a1", bodies=BOTH), attempt("a2", bodies=BOTH), attempt("a3", bodies=BOTH)),
            foreign="F",
            full=True,
        ),
        Configuration(
            "rebased, then other code",
            (attempt("a1", "T1", bodies=BOTH), attempt("a2", "T2", bodies=BOTH)),
            foreign="F",
        ),
        Configuration(
            "siblings, one changes its code",
            (attempt("a1", bodies=BOTH), attempt("b1", "U1", step="B"), attempt("b2", "U2", step="B")),
        ),
        Configuration(
            "siblings, both retried",
            (attempt("a1"), attempt("a2"), attempt("b1", "U", step="B"), attempt("b2", "U", step="B")),
            full=True,
        ),
        Configuration(
            "a step and the one after it",
            (
                attempt("a1"),
                attempt("a2"),
                attempt("a2x", "T+1", epoch=1),
                attempt("b1", "U", step="B", after="A", bodies=BOTH),
                attempt("b1x", "U+1", step="B", after="A", epoch=1, bodies=BOTH),
            ),
            operator=("force A", "force B"),
        ),
        Configuration(
            "serial, for histories without metadata",
            (
                attempt("a1", fence="serial"),
                attempt("a2", fence="serial"),
                attempt("b1", "U", step="B", fence="serial"),
            ),
        ),
        # --- direct transactions --------------------------------------------------------------------------------
        Configuration("one key, two programs", (direct("k1", "K"), direct("k2", "K", "e")), sweepers=1, foreign="F"),
        Configuration("one key, moved back", (direct("k1", "K"), direct("k2", "K")), sweepers=1, operator=("back",)),
        Configuration("two direct writers", (direct("d1"), direct("d2", touches="e")), sweepers=1, unknown=True),
        Configuration(
            "refused, then moved back", (direct("d1", touches="a"),), foreign="X", sweepers=1, operator=("back",)
        ),
        Configuration("a direct writer, two sweepers", (direct("d1"),), sweepers=2, sweeps=2, foreign="F"),
        Configuration(
            "a direct writer and a step", (direct("d1"), attempt("a1"), attempt("a2")), sweepers=1, full=True
        ),
        # --- operators ------------------------------------------------------------------------------------------
        Configuration("moved back by hand", (attempt("a1"), attempt("a1x"), attempt("a2")), operator=("back",)),
        Configuration(
            "moved before the input",
            (attempt("a1", touches="q"), attempt("a2", touches="q")),
            operator=("before",),
            sweepers=1,
        ),
        Configuration(
            "deleted and created again", (attempt("a1"), attempt("a2")), operator=("delete", "create"), sweepers=1
        ),
        Configuration("deleted under a direct writer", (direct("d1"),), operator=("delete", "create"), sweepers=1),
        Configuration(
            "deleted under two direct writers",
            (direct("d1"), direct("k1", "K")),
            operator=("delete", "create"),
            sweepers=1,
            full=True,
        ),
        # --- garbage collection ---------------------------------------------------------------------------------
        Configuration("collected beside direct writers", (direct("d1"), direct("d2", touches="e")), collections=1),
        Configuration(
            "collected and swept beside direct writers",
            (direct("d1"), direct("d2", touches="e")),
            collections=1,
            sweepers=1,
            full=True,
        ),
        Configuration(
            "collected beside a retry",
            (attempt("a1"), attempt("a2")),
            foreign="F",
            collections=1,
            sweepers=1,
            full=True,
        ),
        Configuration("collected while rebasing", (attempt("a1"), attempt("a2")), foreign="F", collections=1),
        Configuration("tagged while collected", (direct("d1"),), operator=("back", "tag"), collections=2),
        Configuration("moved while collected", (direct("d1"),), operator=("back", "again"), collections=2),
        Configuration(
            "expired behind the head",
            (attempt("a1", "T1", bodies=BOTH), attempt("a2", "T2", bodies=BOTH)),
            collections=1,
            expire=True,
        ),
        Configuration(
            "moved back while expiring",
            (direct("d1"),),
            foreign="F",
            operator=("back",),
            collections=1,
            expire=True,
        ),
        Configuration(
            "created again while expiring",
            (direct("d1"),),
            operator=("delete", "create"),
            collections=1,
            expire=True,
        ),
    ]
}


@dataclass(frozen=True, slots=True)
class Live:
    """Whatever happened, and if everyone else is dead: an attempt that has not begun can still complete its step."""

    configuration: Configuration
    fresh: str


LIVE = {
    each.configuration.name: each
    for each in [
        Live(
            Configuration("a third attempt", (attempt("a1", bodies=BOTH), attempt("a2", bodies=BOTH), attempt("a3"))),
            "a3",
        ),
        Live(
            Configuration(
                "a third attempt, swept",
                (attempt("a1", bodies=BOTH), attempt("a2", bodies=BOTH), attempt("a3")),
                sweepers=1,
                full=True,
            ),
            "a3",
        ),
        Live(
            Configuration("other code each time", (attempt("a1", "T1"), attempt("a2", "T2"), attempt("a3", "T3"))), "a3"
        ),
        Live(
            Configuration("a second attempt over a colleague", (attempt("a1"), attempt("a2")), foreign="F", sweepers=1),
            "a2",
        ),
        Live(
            Configuration(
                "a second attempt on a branch created again",
                (attempt("a1"), attempt("a2")),
                operator=("delete", "create"),
            ),
            "a2",
        ),
        Live(
            Configuration("a second attempt after a move by hand", (attempt("a1"), attempt("a2")), operator=("back",)),
            "a2",
        ),
        Live(
            Configuration("rebased, then a second code", (attempt("a1", "T1"), attempt("a2", "T2")), foreign="F"), "a2"
        ),
        Live(
            Configuration(
                "a second attempt under a sibling", (attempt("a1"), attempt("a2"), attempt("b1", "U", step="B"))
            ),
            "a2",
        ),
    ]
}
