"""A runner in a process of its own, to be killed: `python runner_child.py REPOSITORY PIPELINE PARAMS WORKERS GRACE`."""

from __future__ import annotations

import json
import sys

import runner_pipelines

import fenceline as fl
from fenceline.pipeline.embedded.runner import RunInterrupted, run


def main(root: str, pipeline: str, params: str, workers: str, grace: str) -> None:
    repo = fl.open_repository(root)
    print("ready", flush=True)
    try:
        chosen = getattr(runner_pipelines, pipeline)
        result = run(chosen, repo, params=json.loads(params), key="once", workers=int(workers), grace=float(grace))
    except RunInterrupted as error:
        print(json.dumps({"interrupted": error.context["run"]}), flush=True)
    else:
        print(json.dumps(result.as_dict()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
