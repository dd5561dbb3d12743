"""The protocol explored: every configuration keeps every invariant, and every rule is needed.

`FENCELINE_MODEL=full pytest tests/model` also explores the larger worlds. `python tests/model/test_model.py RULE` tells
the shortest story of the damage that a rule prevents; without a rule it lists them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if (
    __name__ == "__main__"
):  # run as a script: this directory is a package, and its parent's parent the place to import from
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    __package__ = "tests.model"

import pytest

from fenceline.txn.decide import decide

from . import deciding
from .configurations import CONFIGURATIONS, LIVE, Live
from .counterexamples import COUNTEREXAMPLES, story
from .model import Model
from .rules import Rule
from .world import Configuration

pytestmark = pytest.mark.no_cover  # all of its time is in the model itself

FULL = os.environ.get("FENCELINE_MODEL") == "full"


def chosen(configuration: Configuration) -> bool:
    return FULL or not configuration.full


@pytest.mark.parametrize(
    "configuration", [each for each in CONFIGURATIONS.values() if chosen(each)], ids=lambda each: each.name
)
def test_nothing_is_violated_in(configuration: Configuration) -> None:
    found = Model(configuration).explore()
    assert found.complete
    assert found.violations == {}


@pytest.mark.parametrize("rule", Rule, ids=str)
def test_the_damage_comes_back_without(rule: Rule) -> None:
    assert story(rule), f"leaving out {rule!s} does no damage in {COUNTEREXAMPLES[rule].configuration!r}"


@pytest.mark.parametrize(
    "live", [each for each in LIVE.values() if chosen(each.configuration)], ids=lambda each: each.configuration.name
)
def test_a_fresh_attempt_can_complete(live: Live) -> None:
    assert Model(live.configuration).stuck(live.fresh) == []


def test_a_direct_writer_ends_on_its_own_wherever_sweeps_and_others_stand() -> None:
    """INV-11: recovery never blocks a write; whatever state it left, a writer gets its answer alone."""
    model = Model(CONFIGURATIONS["a direct writer, two sweepers"])
    found = model.explore(keep_edges=True)
    writer = model.setup.specs[0].who
    assert found.stuck(lambda world: world.processes[0].at == "ended", actors=lambda actor: actor == writer) == []


def test_the_model_drives_the_real_decision() -> None:
    assert vars(deciding)["decide"] is decide


def tell(rule: Rule) -> None:
    name, violation = COUNTEREXAMPLES[rule]
    print(f"Without {rule!s} ({rule.says}):\n\n  {violation}\n\nin {name!r}:\n")
    for number, told in enumerate(story(rule) or [], 1):
        print(f"{number:4}. {told}")


def list_rules() -> None:
    for rule in Rule:
        name, violation = COUNTEREXAMPLES[rule]
        print(f"{rule!s:16} {rule.says}\n{'':16} without it, in {name!r}: {violation}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        tell({str(rule): rule for rule in Rule}[" ".join(sys.argv[1:])])
    else:
        list_rules()
