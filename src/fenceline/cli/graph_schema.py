"""The schema of a graph: shown, planned and applied."""

from __future__ import annotations

from typing import Annotated

import typer

from fenceline.cli.content import Key
from fenceline.cli.graph_options import At, Branch, SchemaFile, text_of
from fenceline.cli.opening import reading, writing
from fenceline.cli.options import Actor, Json, Message, RefArgument, Repo
from fenceline.cli.output import emit, say
from fenceline.cli.published import show_result


def schema_show(
    ref: RefArgument = "main",
    graph: At = "",
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """The schema of a graph, as text or as JSON."""
    found = reading(repo).graph(path=graph).at(ref)
    from fenceline.graph.schema import render, schema_id, to_json

    if as_json:
        emit({"ref": ref, "commit": found.commit.id, "id": schema_id(found.schema), "schema": to_json(found.schema)})
    else:
        say(render(found.schema).rstrip("\n"))


def schema_plan(
    schema: SchemaFile,
    ref: RefArgument = "main",
    graph: At = "",
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """What `graph schema apply` would do with this file, step by step."""
    opened = reading(repo).graph(ref, graph)
    from fenceline.graph.schema_apply import plan_schema

    found = plan_schema(opened, text_of(schema), ref)
    if as_json:
        emit(found.to_json())
    else:
        say(str(found))


def schema_apply(
    schema: SchemaFile,
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Drop types and properties; history keeps them readable.")
    ] = False,
    branch: Branch = "main",
    graph: At = "",
    message: Message = "",
    actor: Actor = None,
    key: Key = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Change the schema of a graph to what this file says; data that breaks a new rule is named."""
    text = text_of(schema)
    opened = writing(repo, as_json).graph(branch, graph)
    from fenceline.graph.schema_apply import apply_schema

    made = apply_schema(opened, text, allow_data_loss=allow_data_loss, actor=actor, key=key, message=message)
    if not as_json:
        say(str(made.plan))
    show_result(made.result, branch, as_json, "schema changed", plan=made.plan.to_json())
