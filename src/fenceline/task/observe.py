"""What can be seen of an attempt from outside: JSON logs with its ids, and spans and metrics where OpenTelemetry is.

Spans and metrics need `pip install 'fenceline[telemetry]'` and an SDK of your choice; without them nothing is lost but
the measurements.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import IO, Any, Literal

from fenceline.errors import FenceError
from fenceline.repo.model import Op
from fenceline.seams import Clock
from fenceline.task.result import Phase

try:
    from opentelemetry import metrics, trace
except ImportError:  # the extra is not installed: everything below still runs, and measures nothing
    metrics = trace = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

AttemptOutcome = Literal[
    "published", "replaced", "adopted", "resumed", "reported", "noop", "read_only", "completed", "fenced", "failed"
]
OUTCOME_OF_ENTRY: Mapping[Op, AttemptOutcome] = {
    Op.PUBLISH: "published",
    Op.RELOCATE: "replaced",
    Op.ADOPT: "adopted",
    Op.NOOP: "noop",
}

_ids: ContextVar[Mapping[str, str]] = ContextVar("fenceline_attempt", default=MappingProxyType({}))


def outcome_of_error(error: BaseException) -> AttemptOutcome:
    return "fenced" if isinstance(error, FenceError) else "failed"


class Observation:
    """One attempt being watched: the phases it passes, and how it ends."""

    def __init__(self, task: str, ids: Mapping[str, str], clock: Clock, span: Any) -> None:
        self._task, self._clock, self._span = task, clock, span
        self._phase: Phase | None = None
        self._since = clock.monotonic()
        self.ids = dict(ids)
        self.outcome: AttemptOutcome = "failed"
        self.bytes = 0

    def identify(self, **ids: str) -> None:
        """More ids, as they become known: the logs carry them from here on."""
        self.ids.update(ids)
        _ids.set(self.ids)
        if self._span is not None:
            self._span.set_attributes({f"fenceline.{name}": value for name, value in ids.items()})

    def enter(self, phase: Phase) -> None:
        self._leave()
        self._phase, self._since = phase, self._clock.monotonic()
        if self._span is not None:
            self._span.add_event(str(phase))

    def measured(self, numbers: Mapping[str, float | Mapping[str, float]]) -> None:
        """What the task's author measured (`workspace.metrics`): in the log, and on the span."""
        log.info("metrics of %s: %s", self._task, json.dumps(numbers))
        if self._span is not None:
            for name, value in numbers.items():
                parts = (
                    {f".{part}": each for part, each in value.items()} if isinstance(value, Mapping) else {"": value}
                )
                self._span.set_attributes({f"fenceline.metric.{name}{part}": each for part, each in parts.items()})

    def _leave(self) -> None:
        if self._phase is not None and metrics is not None:
            seconds = self._clock.monotonic() - self._since
            _meter().create_histogram("fenceline.phase.duration", "s", "Time spent in a phase of an attempt").record(
                seconds, {"task": self._task, "phase": str(self._phase)}
            )

    def end(self) -> None:
        self._leave()
        self._phase = None
        if self._span is not None:
            self._span.set_attribute("fenceline.outcome", self.outcome)
        if metrics is not None:
            labels = {"task": self._task, "outcome": self.outcome}
            _meter().create_counter("fenceline.attempts", "1", "Attempts by how they ended").add(1, labels)
            _meter().create_counter("fenceline.staged", "By", "Bytes staged by attempts").add(self.bytes, labels)


@contextmanager
def observed(task: str, ids: Mapping[str, str], clock: Clock) -> Iterator[Observation]:
    """Watch one attempt."""
    token = _ids.set(ids)
    try:
        if trace is None:
            watching = Observation(task, ids, clock, None)
            yield watching
            watching.end()
            return
        attributes = {"fenceline.task": task, **{f"fenceline.{name}": value for name, value in ids.items()}}
        with trace.get_tracer("fenceline").start_as_current_span("fenceline.attempt", attributes=attributes) as span:
            watching = Observation(task, ids, clock, span)
            yield watching
            watching.end()
    finally:
        _ids.reset(token)


def _meter() -> Any:
    return metrics.get_meter("fenceline")


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the ids of the attempt at work."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03}",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_ids.get(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_json(stream: IO[str] | None = None, level: int = logging.INFO) -> logging.Handler:
    """Send this package's logs to a stream as JSON lines; returns the handler, to remove it again."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("fenceline")
    logger.addHandler(handler)
    logger.setLevel(level)
    return handler
