"""The pictures of the state machine show all of it."""

import re

import pytest

from progressor.model import Disposition, ProcessStatus, TaskType
from progressor.transitions import BROKEN_IN_INIT, TABLE, Ending, Verb
from tests.docs.state_machine import diagram, rules, steps


def test_the_diagram_is_complete() -> None:
    """Every task type, ending, disposition, verb and status stands in the diagram, and nothing twice."""
    text = diagram()
    words = {word.strip(",") for word in text.split()}
    assert words >= {*TaskType, *Ending, *Disposition, *Verb, *ProcessStatus, "removed"}
    lines = text.splitlines()
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize(
    "edge",
    [
        "[*] --> init : start",
        "[*] --> error : put",
        "init --> running : init / success / resume, replace, cancel",
        "init --> removed : init / rejection / remove",
        "init --> error : init / lost / break",
        "running --> error : call, notify / failure / break",
        "running --> running : timeout, remove / failure / retry",
        "running --> error : call, notify, timeout, remove / lost / break",
        "running --> removed : remove",
        "error --> error : repair / failure / hold",
        "error --> error : repair / lost / retry, hold",
        "error --> running : repair / success / resume, replace, cancel",
        "error --> init : repair / success / resume, replace, cancel",
        "error --> running : simple_repair",
        "error --> init : simple_repair",
    ],
)
def test_the_diagram_draws(edge: str) -> None:
    """The edges that the guarantees speak of are drawn."""
    assert f"    {edge}\n" in diagram()


def test_every_rule_is_explained() -> None:
    """What the first table names stands in the second."""
    for rule in (*TABLE.values(), *BROKEN_IN_INIT.values()):
        assert re.search(rf"(\||:) {rule.name}( \||;)", steps())
        assert f"| {rule.name} |" in rules()
