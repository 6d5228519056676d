"""progressor check-states: stored states, read as the types of an app before it is deployed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import NS, Tables

Run = Callable[..., Any]
Put = Callable[..., Any]

APP = """
from typing import Annotated, Any, Literal
from pydantic import AfterValidator, BaseModel, Field
from progressor import Namespace
from tests.cli.raws import Keeping

class Backwards:
    def encode(self, data): return data[::-1]
    def decode(self, data):
        if data == b"?": raise KeyError("secret")
        return data[::-1]

def refuse(value):
    if value == "secret":
        raise ValueError(f"{value} is not allowed")
    if value == "worse":
        raise KeyError(value)
    return value

class Cat(BaseModel):
    kind: Literal["cat"]

class Dog(BaseModel):
    kind: Literal["dog"]

class Order(BaseModel):
    n: int = 0
    text: Annotated[str, AfterValidator(refuse)] = ""
    items: list[Cat] = []
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None

orders = Namespace("shop.order", state=Order)
letters = Namespace("shop.letter", state=Order, codec=Backwards())
anything = Namespace("shop.any")
raw = Namespace("shop.raw", handler=Keeping())
namespaces = [orders, letters, anything, raw]
"""


@pytest.fixture
def check(dsn: str, progressor: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command for the app."""
    (tmp_path / "checked_app.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda *args: progressor("check-states", "checked_app:namespaces", "--database-url", dsn, *args)


@pytest.fixture
def put(tables: Tables) -> Put:
    """Store processes with these states, one created each hour until now."""

    def store(states: Sequence[bytes | None], namespace: str = NS) -> None:
        tables.set_namespace(namespace)
        for number, state in enumerate(states):
            tables.execute(
                "INSERT INTO processes (namespace_no, process_id, status, status_changed_at, created_at,"
                " aux_state) SELECT namespace_no, %s, 'running', now(), now() - make_interval(hours => %s),"
                " %s FROM namespaces WHERE name = %s",
                f"p{number}",
                len(states) - number,
                state,
                namespace,
            )

    return store


def test_all_can_be_read(check: Run, put: Put) -> None:
    """Status 0, a line for each namespace; one that was never served has no states."""
    put([b'{"n":1}', b'{"n":2,"unknown":1}', None])
    put([b'{"n":1}'[::-1]], "shop.letter")
    done = check()
    assert done.status == 0
    assert done.out.splitlines() == [
        "ok  shop.order: all 3 states can be read",
        "ok  shop.letter: all 1 states can be read",
        "ok  shop.any: all 0 states can be read",
        "skipped  shop.raw: a raw handler, so its states have no type",
    ]


def test_faults_name_process_field_and_rule(check: Run, put: Put) -> None:
    """Status 1. Equal faults are one, whatever the item."""
    put([
        b'{"n":"secret"}',
        b'{"n":1}',
        b'{"items":[{"kind":"cat"},{"kind":"secret"}]}',
        b'{"items":[{"kind":"secret"}]}',
        b'{"pet":{"kind":"secret"}}',
        b'{"text":"secret"}',
        b'{"text":"worse"}',
        b"secret",
    ])  # fmt: skip
    put([b"?", b'{"n":null}'[::-1]], "shop.letter")
    done = check()
    assert done.status == 1
    assert done.out.splitlines()[:-2] == [
        "UNREADABLE  shop.order: 7 of all 8 states",
        "    state.items.*.kind: Input should be 'cat'",
        "      in 2: p2, p3",
        "    state.n: Input should be a valid integer, unable to parse string as an integer",
        "      in 1: p0",
        "    state.pet: Input tag must be one of 'cat', 'dog'",
        "      in 1: p4",
        "    state.text: a validator refuses it (ValueError)",
        "      in 1: p5",
        "    state: a validator raised KeyError",
        "      in 1: p6",
        "    state: Invalid JSON: expected value at line 1 column 1",
        "      in 1: p7",
        "UNREADABLE  shop.letter: 2 of all 2 states",
        "    state: the codec raised KeyError",
        "      in 1: p0",
        "    state.n: Input should be a valid integer",
        "      in 1: p1",
    ]
    assert "secret" not in done.out + done.err


def test_json(check: Run, put: Put) -> None:
    """For machines, of one namespace; no more than three examples of a fault."""
    put([b'{"n":"x"}'] * 5)
    done = check("--json", "--namespace", NS)
    assert done.status == 1
    rule = "Input should be a valid integer, unable to parse string as an integer"
    fault = {"field": "state.n", "rule": rule, "states": 5, "processes": ["p0", "p1", "p2"]}
    sample = {"states": 5, "unreadable": 5, "is_whole": True, "skipped": False, "faults": [fault]}
    assert json.loads(done.out) == {"readable": False, "namespaces": [{"namespace": NS, **sample}]}


@pytest.mark.parametrize("size", [1, 20, 25, 59])
def test_a_sample_is_spread(check: Run, put: Put, size: int) -> None:
    """It is no larger than wanted, and has the oldest process."""
    put([b'{"n":"x"}'] + [b'{"n":1}'] * 59)
    done = check("--namespace", NS, "--sample", str(size))
    assert done.out.startswith(f"UNREADABLE  {NS}: 1 of a sample of {size} states\n")


def test_a_sample_of_two_has_young_ones(check: Run, put: Put) -> None:
    """With one for each part of the time the newest part is looked at too."""
    put([b'{"n":1}'] * 58 + [b'{"n":"x"}'] * 2)
    assert check("--namespace", NS, "--sample", "20").status == 1


def test_all_are_read_where_all_came_at_once(check: Run, put: Put, tables: Tables) -> None:
    """As an import makes them: parts of the time without processes leave their share to the others."""
    put([b'{"n":1}'] * 120)
    tables.execute("UPDATE processes SET created_at = now() - interval '1 day' WHERE process_id <> 'p119'")
    assert "all 120 states" in check("--namespace", NS).out
    assert "a sample of 110 states" in check("--namespace", NS, "--sample", "110").out


def test_a_namespace_that_the_app_lacks(check: Run) -> None:
    """A usage error that names the others."""
    done = check("--namespace", "shop.other")
    assert done.status == 2
    assert "APP has shop.order" in done.err


def test_tables_that_do_not_fit(check: Run, tables: Tables) -> None:
    """Status 2, as nothing was looked at."""
    tables.execute("DROP TABLE alembic_version")
    assert check().status == 2
