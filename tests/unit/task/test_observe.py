"""Attempts as they are seen from outside: spans, metrics, JSON logs."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel, ConfigDict

import fenceline as fl
from fenceline.task.attempt import AttemptRunner
from fenceline.task.observe import log_json
from fenceline.testing.orchestrator import MemoryOrchestrator

SPANS = InMemorySpanExporter()
READER = InMemoryMetricReader()


@pytest.fixture(scope="module", autouse=True)
def providers() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([READER]))


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str = "out"


class Result(BaseModel):
    ok: bool = True


@fl.task(name="observed", owner="data@example.com", version="1", workspace=fl.WorkspaceSpec())
def observed_task(workspace: Path, params: Params) -> Result:
    logging.getLogger("fenceline.example").info("in the body")
    (workspace / "out.txt").write_text(params.text)
    return Result()


@pytest.fixture
def attempt(tmp_path: Path) -> Any:
    repo = fl.open_repository(tmp_path / "repo", create=True)
    orchestrator = MemoryOrchestrator()
    runner = AttemptRunner(lambda url: repo.native, orchestrator, tmp_path / "work", actor="worker")
    place = {"repository": repo.url, "branch": "main", "ref_type": "commit", "ref": repo.head("main").commit.id}
    step = orchestrator.schedule("observed", {"workspace": place, "params": {}})
    SPANS.clear()
    return lambda: runner.run(observed_task, orchestrator.take(step)), lambda: orchestrator.retry(step)


def points(name: str) -> list[tuple[dict[str, Any], float]]:
    found = []
    data = READER.get_metrics_data()
    assert data is not None
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.name == name:
                    for point in metric.data.data_points:
                        value = getattr(point, "value", None)
                        found.append((dict(point.attributes or {}), point.count if value is None else value))  # type: ignore[union-attr]
    return found


@fl.task(name="measuring", owner="data@example.com", version="1", workspace=fl.WorkspaceSpec())
def measuring_task(workspace: fl.Workspace, params: Params) -> Result:
    with workspace.metrics.timer("reading"):
        workspace.metrics.counter("songs", 3)
    if params.text == "fail":
        raise fl.TaskFailed("no luck")
    return Result()


@pytest.mark.parametrize(("text", "status"), [("out", "COMPLETED"), ("fail", "FAILED")])
def test_what_an_author_measures_is_told_also_where_the_body_fails(tmp_path: Path, text: str, status: str) -> None:
    repo = fl.open_repository(tmp_path / "repo", create=True)
    orchestrator = MemoryOrchestrator()
    facts: dict[str, Any] = {}
    runner = AttemptRunner(lambda url: repo.native, orchestrator, tmp_path / "work", on_fact=facts.__setitem__)
    place = {"repository": repo.url, "branch": "main", "ref_type": "commit", "ref": repo.head("main").commit.id}
    step = orchestrator.schedule("measuring", {"workspace": place, "params": {"text": text}})
    stream = io.StringIO()
    handler = log_json(stream)
    SPANS.clear()
    try:
        assert runner.run(measuring_task, orchestrator.take(step)).status == status
    finally:
        logging.getLogger("fenceline").removeHandler(handler)
    numbers = facts["metrics"]["metrics"]
    assert (numbers["songs"], numbers["reading"]["count"]) == (3, 1)
    assert any("metrics of measuring" in line for line in stream.getvalue().splitlines())
    (span,) = SPANS.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["fenceline.metric.songs"] == 3
    assert span.attributes["fenceline.metric.reading.count"] == 1


def test_a_span_and_metrics_for_every_attempt(attempt: Any) -> None:
    run, retry = attempt
    assert run().status == "COMPLETED"
    retry()
    assert run().status == "COMPLETED"
    first, second = SPANS.get_finished_spans()
    assert first.name == "fenceline.attempt"
    assert first.attributes is not None
    assert second.attributes is not None
    assert first.attributes["fenceline.outcome"] == "published"
    assert second.attributes["fenceline.outcome"] == "adopted"
    assert first.attributes["fenceline.txn"] == second.attributes["fenceline.txn"]
    assert [event.name for event in first.events][:2] == ["look_back", "materialise"]
    outcomes = {labels["outcome"]: value for labels, value in points("fenceline.attempts")}
    assert outcomes["published"] >= 1
    assert outcomes["adopted"] >= 1
    assert {"body", "publish"} <= {labels["phase"] for labels, _ in points("fenceline.phase.duration")}
    assert sum(v for labels, v in points("fenceline.staged") if labels["outcome"] == "published") >= 3


def test_log_lines_carry_the_ids_of_the_attempt(attempt: Any) -> None:
    run, _ = attempt
    stream = io.StringIO()
    handler = log_json(stream)
    try:
        run()
    finally:
        logging.getLogger("fenceline").removeHandler(handler)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    body = next(line for line in lines if line["message"] == "in the body")
    assert body["step"] == "w1/observed/0"
    assert body["attempt"] == "t1/0/0"
    assert len(body["txn"]) == 64
    assert body["execution"]


def test_without_opentelemetry_everything_runs() -> None:
    script = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from fenceline.task.observe import observed\n"
        "from fenceline.seams import SystemClock\n"
        "with observed('t', {}, SystemClock()) as watching: watching.identify(txn='x')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
