"""Writing what pipelines compile to: extract."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fenceline.cli.options import Json
from fenceline.cli.output import counted, emit, remark, say
from fenceline.errors import store_error
from fenceline.pipeline.definition.loading import load_pipelines
from fenceline.pipeline.form.compiling import canonical, workflow_def
from fenceline.pipeline.form.taskdefs import task_defs

PipelineReference = Annotated[
    str,
    typer.Argument(
        metavar="MODULE[:PIPELINE]",
        help="package.module or path/to/file.py, and after ':' one pipeline or its function.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="Write files into this directory.", show_default="print them")]


def extract(reference: PipelineReference, out: Out = None, as_json: Json = False) -> None:
    """Compile pipelines to Conductor's JSON: one workflow.NAME.json each, and task.NAME.json for the tasks they use."""
    workflows: dict[str, Any] = {}
    tasks: dict[str, Any] = {}
    for pipeline in load_pipelines(reference):
        workflows[pipeline.name] = workflow_def(pipeline)
        tasks.update({str(each["name"]): each for each in task_defs(pipeline)})
    files = dict(_files(workflows, tasks))
    if out is not None:
        _write(out, files)
    if as_json:
        written = {"files": sorted(str(out / name) for name in files)} if out is not None else {}
        emit(json.loads(canonical({"workflows": workflows, "tasks": tasks, **written})))
    elif out is None:
        for name, text in files.items():
            remark(name)
            say(text.rstrip("\n"))
    else:
        for name in files:
            say(str(out / name))
        say(f"{counted(len(workflows), 'workflow')}, {counted(len(tasks), 'task')}")


def _files(workflows: dict[str, Any], tasks: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for kind, documents in (("workflow", workflows), ("task", tasks)):
        for name in sorted(documents):
            yield f"{kind}.{name}.json", canonical(documents[name])


def _write(out: Path, files: dict[str, str]) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise store_error(error, f"writing definitions to {out}") from error
