"""The shop of `examples/cdnow`: a part of the file through the code that `progressor demo` runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any, LiteralString

import pytest
from rich.console import Console

from examples.cdnow import troubles
from examples.cdnow.check import compare
from examples.cdnow.main import Report, forget_runs, replay, serving
from examples.cdnow.purchases import read_customers
from examples.cdnow.read_model import sales
from examples.cdnow.shop import NAMESPACE, shop
from progressor import Client, Engine, ProcessNotFound, Rejected
from tests.support import Tables, eventually

QUICK = timedelta(milliseconds=1)


def console() -> Console:
    return Console(quiet=True)


async def replay_of(client: Client, dsn: str, customers: int) -> Report:
    return await replay(client, dsn, read_customers(most=customers), console(), day=QUICK)


async def differing(client: Client, dsn: str, report: Report, customers: int) -> list[str]:
    """What differs from the file by now; the read model is read once."""
    lines, _ = await compare(
        client, dsn, read_customers(most=customers), report.progress, patience=timedelta()
    )
    return [line.what for line in lines if not line.agrees]


def rows_of_model(tables: Tables) -> list[Any]:
    return [
        *tables.execute("SELECT * FROM cdnow.customers ORDER BY run, process_id"),
        *tables.execute("SELECT * FROM cdnow.days ORDER BY run, day"),
    ]


def test_the_file_has_the_totals_that_are_published_of_it() -> None:
    """Customers, purchases, CDs and dollars, in the order of its lines."""
    customers = read_customers()
    purchases = [each for customer in customers for each in customer.purchases]

    assert len(customers) == 2_357
    assert len(purchases) == 6_919
    assert sum(each.cds for each in purchases) == 16_479
    assert sum(each.cents for each in purchases) == 244_091_94
    assert [each.line for each in purchases] == list(range(1, 6_920))


def test_every_kind_of_trouble_is_in_the_file_and_in_its_first_250_customers() -> None:
    """So a short demo shows all of them."""
    for customers in (read_customers(), read_customers(most=250)):
        purchases = [each for customer in customers for each in customer.purchases]
        for trouble in (
            troubles.asks_for_nothing,
            troubles.asks_too_much_back,
            troubles.asks_twice,
            troubles.meets_jammed_till,
        ):
            assert any(map(trouble, purchases))
        assert any(troubles.is_over_limit(c, each) for c in customers for each in c.purchases)


async def test_the_processes_agree_with_the_file(dsn: str) -> None:
    """Every one, and the report says so to people and machines."""
    async with serving(dsn) as engine:
        report = await replay_of(engine.client, dsn, 250)

    assert report.differences == []
    assert [line for line in report.lines if not line.agrees] == []
    assert report.found.processes == 250
    assert report.found.went_quiet >= 250
    assert report.agrees
    assert json.loads(report.as_json())["agrees"] is True


async def test_a_second_run_begins_anew_beside_the_first(dsn: str, tables: Tables) -> None:
    """And both can be forgotten, with their rows of the read model."""
    async with serving(dsn) as engine:
        first = await replay_of(engine.client, dsn, 5)
        second = await replay_of(engine.client, dsn, 5)

        assert first.agrees
        assert second.agrees
        assert first.progress.run != second.progress.run
        assert await forget_runs(engine.client) == 10
        assert (await engine.client.search(namespace=NAMESPACE)).items == []
        await eventually(lambda: not rows_of_model(tables), "the rows are deleted")


async def test_a_difference_from_the_file_is_found_and_told(dsn: str) -> None:
    """By the customer that differs, and in the totals."""
    customers = read_customers(most=5)
    async with serving(dsn) as engine:
        report = await replay(engine.client, dsn, customers, console(), day=QUICK)
        other, *same = customers
        first, *later = other.purchases
        cheaper = replace(other, purchases=(replace(first, cents=first.cents - 1), *later))
        lines, found = await compare(engine.client, dsn, [cheaper, *same], report.progress)

    assert [line.what for line in lines if not line.agrees] == [
        "dollars",
        "histories as in the file",
        "customers as in the file",
        "dollars of all customers",
        "best selling days, in order",
        "dollars of all days",
    ]
    assert f"{report.progress.run}-0001" in found.differences[0]


async def test_a_customer_that_the_engine_lost_is_found(dsn: str) -> None:
    """All totals that he was part of differ."""
    customers = read_customers(most=3)
    async with serving(dsn) as engine:
        report = await replay(engine.client, dsn, customers, console(), day=QUICK)
        await engine.client.remove(NAMESPACE, f"{report.progress.run}-0002")
        lines, _ = await compare(engine.client, dsn, customers, report.progress)

    assert {"processes", "purchase events", "CDs"} <= {line.what for line in lines if not line.agrees}


async def test_an_unplanned_failure_is_a_difference(dsn: str) -> None:
    """With its reason."""
    customers = read_customers(most=2)
    customer = customers[0]
    bad = replace(customer, purchases=(replace(customer.purchases[0], cds=0), *customer.purchases[1:]))
    async with serving(dsn) as engine:
        report = await replay(engine.client, dsn, [bad, customers[1]], console(), day=QUICK)

    assert not report.agrees
    assert any("a purchase needs at least one CD" in each for each in report.differences)


@pytest.mark.parametrize(
    ("damage", "differences"),
    [
        ("UPDATE cdnow.customers SET cds = cds + 1", ["customers as in the file"]),
        ("UPDATE cdnow.customers SET purchases = 0", ["customers as in the file"]),
        ("UPDATE cdnow.customers SET event_id = 0", ["customers as in the file"]),
        (
            "DELETE FROM cdnow.customers WHERE right(process_id, 4) = '0002'",
            ["customers as in the file", "dollars of all customers"],
        ),
        ("UPDATE cdnow.days SET purchases = purchases + 1", ["best selling days, in order"]),
        (
            "UPDATE cdnow.days SET cents = cents + 1 WHERE day = '1997-01-01'",
            ["best selling days, in order", "dollars of all days"],
        ),
        (
            "INSERT INTO cdnow.days SELECT run, '2000-01-01', 1, 1, 1 FROM cdnow.days LIMIT 1",
            ["dollars of all days"],
        ),
    ],
)
async def test_a_read_model_that_is_wrong_is_found_and_built_anew(
    dsn: str, tables: Tables, damage: LiteralString, differences: list[str]
) -> None:
    """A wrong row, one that is missing and one too many differ; from the beginning all come out right."""
    async with serving(dsn) as engine:
        report = await replay_of(engine.client, dsn, 5)
        assert report.agrees
        right = rows_of_model(tables)
        tables.execute(damage)
        assert await differing(engine.client, dsn, report, 5) == differences

        await engine.client.move_subscription(sales.subscription, "beginning")
        await eventually(lambda: rows_of_model(tables) == right, "the rows as before")
        assert await differing(engine.client, dsn, report, 5) == []


async def test_a_read_model_that_lost_its_place_is_built_anew(dsn: str, tables: Tables) -> None:
    """As after weeks without a run: the next run mends it, and both runs have their rows."""
    async with serving(dsn) as engine:
        assert (await replay_of(engine.client, dsn, 2)).agrees
    before = rows_of_model(tables)
    tables.execute("UPDATE progressor.subscription_slices SET epoch = epoch # 1")
    async with serving(dsn) as engine:
        assert (await replay_of(engine.client, dsn, 2)).agrees
    assert len(before) < len(rows_of_model(tables))
    assert [row for row in rows_of_model(tables) if row in before] == before


async def test_money_is_given_back_up_to_what_was_paid(dsn: str) -> None:
    """More is refused, with what was paid."""
    async with Engine(dsn, [shop]) as engine:
        customer = engine.client.process(NAMESPACE, "one")
        await customer.start({"line": 1, "day": "1997-01-01", "cds": 2, "cents": 500})

        assert (await customer.call("refund", {"cents": 200}))["cents"] == 300
        with pytest.raises(Rejected) as rejection:
            await customer.call("refund", {"cents": 301})

    assert rejection.value.details == {"paid": 300, "asked": 301}


async def test_a_refused_start_leaves_no_customer(dsn: str) -> None:
    """There is nobody to be read."""
    async with Engine(dsn, [shop]) as engine:
        customer = engine.client.process(NAMESPACE, "none")
        with pytest.raises(Rejected):
            await customer.start({"line": 1, "day": "1997-01-01", "cds": 0, "cents": 0})
        with pytest.raises(ProcessNotFound):
            await customer.get()


# A shell that starts the tests in the background makes all below it deaf to SIGINT.
HEARING = """
import signal
from progressor.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


def test_ctrl_c_stops_the_demo_cleanly(dsn: str) -> None:
    """With a line, without a traceback, and with the status of an interrupt."""
    demo = subprocess.Popen(
        [sys.executable, "-c", HEARING, "demo", "--customers", "20"],
        env={**os.environ, "PROGRESSOR_DATABASE_URL": dsn},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if "purchases" in line:
            break
    demo.send_signal(signal.SIGINT)
    rest, _ = demo.communicate(timeout=60)

    assert "Stopped." in rest
    assert "Traceback" not in rest
    assert demo.returncode == 130
