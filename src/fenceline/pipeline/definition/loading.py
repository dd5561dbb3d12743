"""Finding pipelines: by the name of a module, or the path of a file."""

from __future__ import annotations

from typing import Any, TypeAlias

from fenceline.pipeline.definition.model import PipelineDefinition, PipelineError
from fenceline.task.contract import LoadError
from fenceline.task.loading import Sought

AnyPipeline: TypeAlias = PipelineDefinition[Any]

_PIPELINES: Sought[AnyPipeline] = Sought(PipelineDefinition, "pipeline", "@pipeline(name='…')", PipelineError)


def load_pipelines(reference: str) -> tuple[AnyPipeline, ...]:
    """The pipelines that a reference leads to: see `Sought.find`."""
    return _PIPELINES.find(reference)


def load_pipeline(reference: str) -> AnyPipeline:
    """The one pipeline that a reference leads to."""
    found = load_pipelines(reference)
    if len(found) != 1:
        names = ", ".join(each.name for each in found)
        raise LoadError(f"{reference} has {len(found)} pipelines: {names}", hint="name one: MODULE:PIPELINE")
    return found[0]
