"""The tasks every pipeline has, where Conductor would want a script: begin, test, fan and publish (decision 0013)."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fenceline.api import Repository, hold
from fenceline.errors import AlreadyExists, ContractError, MergeConflict, NotFound, PublishFenceError, StaleAttemptError
from fenceline.repo.lakefs.repository import RUN_PREFIX, SCHEME, LakeRepository
from fenceline.repo.merge import Strategy
from fenceline.repo.model import Commit, Op
from fenceline.seams import Seams
from fenceline.task.given import chosen, read_place
from fenceline.task.lease import Lease
from fenceline.task.orchestrator import HandedOut, Orchestrator, attempt_fence
from fenceline.task.result import Status, TaskResult
from fenceline.task.step import AnyRepository

log = logging.getLogger(__name__)

BEGIN, TEST, FAN, PUBLISH = "fenceline.begin", "fenceline.test", "fenceline.fan", "fenceline.publish"
HEARTBEAT = 10.0

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class PublishRefused(PublishFenceError):
    """What a run made cannot be brought to its target branch; its own branch is kept."""

    code = "fence.publish_run"


def run_branch(workflow: str, repository: str = "") -> str:
    """The branch a run works on, out of sight until it is published."""
    return f"{RUN_PREFIX}{workflow}" if repository.startswith(f"{SCHEME}://") else f"run/{workflow}"


@dataclass(frozen=True, slots=True)
class Builtins:
    """Runs attempts of the built-in tasks. All of them can be repeated."""

    NAMES: ClassVar[tuple[str, ...]] = (BEGIN, TEST, FAN, PUBLISH)

    repositories: Callable[[str], AnyRepository]
    orchestrator: Orchestrator
    actor: str | None = None
    seams: Seams = field(default_factory=Seams)

    def run(self, attempt: HandedOut, lease: Lease) -> TaskResult:
        """One attempt. Never raises: whatever happens becomes a result."""
        work = {BEGIN: self._begin, TEST: self._test, FAN: self._fan, PUBLISH: self._publish}[attempt.task]
        try:
            given = attempt.input
            if not isinstance(given, Mapping):
                raise ContractError(f"the input of {attempt.task} is {type(given).__name__}", hint="give an object")
            lease.check()
            return TaskResult("COMPLETED", work(attempt, given))
        except Exception as error:  # noqa: BLE001 - every error becomes a result
            final = isinstance(error, ContractError | PublishRefused)
            status: Status = "FAILED_WITH_TERMINAL_ERROR" if final else "FAILED"
            result = TaskResult.failed(status, error)
            log.warning("attempt %s of %s: %s", attempt.identity.attempt, attempt.identity.step, result.reason)
            return result

    # --- the tasks ----------------------------------------------------------------------------------------------

    def _begin(self, attempt: HandedOut, given: Mapping[str, Any]) -> dict[str, Any]:
        """Where the run works: on a branch of its own, or step by step on the target."""
        repository, target, publish = _text(given, "repository"), _text(given, "branch"), _text(given, "publish")
        if publish not in ("run", "step"):
            raise ContractError(f"{BEGIN}: publish is {publish!r}", hint="use 'run' or 'step'")
        store = self.repositories(repository)
        if publish == "step":
            head = store.head(target)
            return {"workspace": _place(repository, target, head.commit.id), "target": target}
        branch = run_branch(attempt.identity.workflow, repository)
        store.head(target)  # a wrong target is told before a branch is made
        attempt_fence(self.orchestrator, attempt)
        start = _created_at(store, branch, attempt.identity.workflow)
        if start is None:
            try:
                start = hold(store).create_branch(branch, target, actor=self._actor(store)).commit.id
            except AlreadyExists:  # an attempt before this one was a little faster
                start = _created_at(store, branch, attempt.identity.workflow)
        return {"workspace": _place(repository, branch, start), "target": target}

    def _test(self, attempt: HandedOut, given: Mapping[str, Any]) -> dict[str, Any]:
        """A condition, as the text that a SWITCH compares."""
        _only(given, TEST, "left", "op", "right")
        left, name, right = given["left"], given["op"], given["right"]
        if name not in _OPERATORS:
            raise ContractError(f"{TEST}: op is {name!r}", hint=f"use one of {', '.join(_OPERATORS)}")
        try:
            holds = _OPERATORS[name](left, right)
        except TypeError:
            kinds = f"{type(left).__name__} {name} {type(right).__name__}"
            raise ContractError(f"{TEST}: {kinds} cannot be compared", hint="compare values of one type") from None
        return {"holds": "true" if holds else "false"}

    def _fan(self, attempt: HandedOut, given: Mapping[str, Any]) -> dict[str, Any]:
        """For each of the steps that a foreach was unrolled to: whether there is an item for it."""
        _only(given, FAN, "items", "most")
        items, most = given["items"], given["most"]
        if not isinstance(items, list) or not isinstance(most, int):
            raise ContractError(f"{FAN}: items are {type(items).__name__}", hint="a foreach goes over a list")
        if len(items) > most:
            raise ContractError(
                f"{FAN}: there are {len(items)} items, and the pipeline allows {most}",
                hint="raise most= of the foreach, or give it fewer items",
            )
        return {"has": ["true" if number < len(items) else "false" for number in range(most)]}

    def _publish(self, attempt: HandedOut, given: Mapping[str, Any]) -> dict[str, Any]:
        """The run's one visible move. Its key makes a repetition adopt it, whoever died in between."""
        place, target = read_place(given.get("workspace"), PUBLISH), _text(given, "target")
        store = self.repositories(place.repository)
        if place.branch == target:
            raise ContractError(f"{PUBLISH}: {target} is to be merged into itself", hint="leave publish out")
        made = chosen(store, place.refs)
        run = attempt.identity.workflow
        if store.find_head(place.branch) is not None:  # gone: an attempt before this one was done with it
            _refuse_foreign(store, place.branch, made, run)
        attempt_fence(self.orchestrator, attempt)
        commit = publish_run(hold(store), run, made.id, place.branch, target, self._actor(store))
        return {"workspace": _place(place.repository, target, commit)}

    # --- parts --------------------------------------------------------------------------------------------------

    def _actor(self, store: AnyRepository) -> str:
        return self.actor or store.seams.actor()


def publish_run(
    repo: Repository, run: str, commit: str, branch: str, target: str, actor: str, strategy: Strategy | None = None
) -> str:
    """Merge what a run made into its target, exactly once, and delete its branch; returns the target's commit."""
    try:
        result = repo.merge(
            commit, into=target, actor=actor, message=f"Run {run}", strategy=strategy, key=run_branch(run)
        )
    except MergeConflict as error:
        paths = ", ".join(str(each) for each in error.conflicts[:5])
        more = f" and {len(error.conflicts) - 5} more" if len(error.conflicts) > 5 else ""
        raise PublishRefused(
            f"{branch} and {target} both changed {paths}{more}; {branch} is kept",
            hint=f"merge {target} into {branch} as you want it (fenceline merge {target} --into {branch}), then "
            f"fenceline runs publish {run}",
            branch=branch,
            target=target,
            paths=[str(each) for each in error.conflicts],
        ) from error
    try:
        repo.delete_branch(branch, actor=actor)
    except NotFound:  # an attempt before this one, or a person, was faster
        log.debug("%s is gone already", branch)
    return result.commit


def _refuse_foreign(store: AnyRepository, branch: str, made: Commit, run: str) -> None:
    """Deleting the branch must not drop what others put on it (INV-5)."""
    head = store.head(branch).commit
    after = store.line_since(head, made)
    if after is None:
        raise PublishRefused(
            f"{branch} was moved away from {made.id[:12]}, what the run made",
            hint=f"fenceline runs publish {run} publishes the branch as it is now",
        )
    foreign = [commit for commit in after if not (commit.step or "").startswith(f"{run}/")]
    if foreign:
        who = ", ".join(f"{commit.id[:12]} by {commit.actor}" for commit in foreign[:3])
        raise PublishRefused(
            f"{branch} has commits that are not the run's: {who}",
            hint=f"fenceline runs publish {run} publishes the branch with them",
        )


def _created_at(store: AnyRepository, branch: str, run: str) -> str | None:
    """The commit at which an earlier attempt made the branch: all of them answer the same."""
    if isinstance(store, LakeRepository):
        head = store.find_head(branch)
        line = store.line(head.commit) if head else iter(())
        return next((commit.id for commit in line if not (commit.step or "").startswith(f"{run}/")), None)
    last = store.branch_log.last(branch)
    entries = store.branch_log.entries(branch, 0, last.seq if last else 0)  # entries never change
    created = next((entry.commit for entry in entries if entry.op is Op.CREATE), None)
    if created is not None and store.find_head(branch) is None:
        raise StaleAttemptError(f"{branch} was deleted", hint="the run was published or given up: start a new one")
    return created


def _place(repository: str, branch: str, commit: str | None) -> dict[str, str | None]:
    return {"repository": repository, "branch": branch, "ref_type": "commit", "ref": commit}


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise ContractError(f"{name} is {value!r}", hint=f"give {name} as text")
    return value


def _only(given: Mapping[str, Any], task: str, *names: str) -> None:
    if set(given) != set(names):
        raise ContractError(f"the input of {task} has {sorted(given)}", hint=f"it takes exactly {sorted(names)}")
