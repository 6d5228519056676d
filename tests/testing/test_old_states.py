"""States of an older version, kept in a file, and read as the types of today."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from progressor import InvalidRequest, Namespace
from progressor.cli.main import app
from progressor.testing import UnreadableStates, World

NS = "shop.order"


class Order(BaseModel):
    """As it was."""

    paid: int
    address: dict[str, str]


class OrderOfToday(BaseModel):
    """As it is: a field more, and another type."""

    paid: int
    address: dict[str, int]
    notes: list[str] = []


async def stored(dsn: str) -> None:
    async with World(dsn, [Namespace(NS, state=Order)]) as world:
        for name, house in (("well", "7"), ("ill", "unknown")):
            await world.client.put(NS, name, state={"paid": 3, "address": {"house": house}})


@pytest.fixture
def file(dsn: str, tmp_path: Path) -> Path:
    """The output of the documented command, of two processes."""
    asyncio.run(stored(dsn))
    found = CliRunner().invoke(app, ["search", "--json", "--database-url", dsn])
    assert found.exit_code == 0, found.output
    path = tmp_path / "states.json"
    path.write_text(found.output, encoding="utf-8")
    return path


def test_states_that_can_be_read_are_counted(dsn: str, file: Path) -> None:
    """Pages may stand one after the other, in one line or many."""
    page = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(file.read_text(encoding="utf-8") + json.dumps(page, indent=2), encoding="utf-8")
    assert World(dsn, [Namespace(NS, state=Order)]).old_states(file) == 4
    assert World(dsn, [Namespace(NS, state=Order)]).old_states(str(file)) == 4


def test_a_state_that_cannot_be_read_is_named_without_its_value(dsn: str, file: Path) -> None:
    """Process, field and rule."""
    with pytest.raises(UnreadableStates) as caught:
        World(dsn, [Namespace(NS, state=OrderOfToday)]).old_states(file)
    (fault,) = caught.value.faults
    assert fault.startswith("'shop.order/ill': state.address.house: Input should be a valid integer")
    assert str(caught.value) == fault
    assert "unknown" not in fault


class Silent:
    """A raw handler."""

    async def process(self, task: Any, process: Any, /) -> Any:
        raise AssertionError("not to be run")


@pytest.mark.parametrize(
    ("text", "namespace", "says"),
    [
        ("", Namespace(NS), "has no states: it must be the output of `progressor search --json`"),
        ('{"items": []}', Namespace(NS), "has no states"),
        ("paid: 3", Namespace(NS), "is not JSON"),
        ("[1]", Namespace(NS), "must be the output"),
        ('{"items": [{"state": 1}]}', Namespace(NS), "of processes with JSON states"),
        (None, Namespace("other"), f"{NS} is none of this world's"),
        (None, Namespace(NS, handler=Silent()), f"{NS} has a raw handler"),
    ],
)
def test_a_file_without_states_of_the_world_passes_no_test(
    dsn: str, file: Path, text: str | None, namespace: Namespace[Any], says: str
) -> None:
    """Nothing that was looked at is an error, and no success."""
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=says) as caught:
        World(dsn, [namespace]).old_states(file)
    assert caught.value.field == "file"
