"""The courier and the sweeper: what they deliver, whom they wake, what they show and how they survive."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from progressor.errors import StorageUnavailable
from progressor.loggers import message_of
from progressor.node.courier import Courier
from progressor.services.outbox_sweeper import OutboxSweeper
from progressor.storage.outbox import Delivery, RefusedMessage, WaitingMessages
from tests.support import SECOND

NS = "courier.target"
NOTHING = Delivery(Counter())
REFUSED = RefusedMessage("shop", "o1", 1, 7, NS, "p1", "post", "not_found")


class Scripted:
    """Stands where the outbox would: each delivery is the next of these, or raises it."""

    def __init__(self, *deliveries: Delivery | Exception) -> None:
        self.left = list(deliveries)
        self.asked = 0
        self.meanwhile: Callable[[], object] = lambda: None
        self.found = WaitingMessages(0, None, None)

    async def deliver(self, **_: object) -> Delivery:
        self.asked += 1
        await asyncio.sleep(0)
        self.meanwhile()
        next_one = self.left.pop(0) if self.left else NOTHING
        if isinstance(next_one, Exception):
            raise next_one
        return next_one

    async def waiting(self) -> WaitingMessages:
        return self.found


def couriers(*deliveries: Delivery | Exception) -> tuple[Courier, Any, list[str]]:
    woken: list[str] = []
    outbox: Any = Scripted(*deliveries)
    return Courier(outbox, lambda name, _: woken.append(name)), outbox, woken


def counted(outcome: str) -> float:
    labels = {"prg_namespace": NS, "outcome": outcome}
    return REGISTRY.get_sample_value("progressor_messages_total", labels) or 0.0


async def test_it_goes_on_until_nothing_is_left() -> None:
    """It wakes the workers of each namespace, and counts what it delivered."""
    before = counted("delivered")
    flight = Delivery(Counter({NS: 3}), (), (NS, "other"), more=True)
    courier, outbox, woken = couriers(flight, flight, NOTHING)
    assert courier.is_idle
    courier.ring()
    assert not courier.is_idle
    await courier.idle()
    assert (outbox.asked, woken) == (3, [NS, "other"] * 2)
    assert counted("delivered") - before == 6
    await courier.stop()


async def test_a_ring_meanwhile_is_not_lost() -> None:
    """What is sent while a flight is under way is looked for once more; two rings at once are one."""
    courier, outbox, _ = couriers()
    outbox.meanwhile = lambda: courier.ring() if outbox.asked == 1 else None
    courier.ring()
    courier.ring()
    await courier.idle()
    assert outbox.asked == 2
    await courier.stop()


async def test_what_is_refused_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    """In a line with its sender, its target and the reason, and in a count."""
    before = counted("refused")
    courier, _, woken = couriers(Delivery(Counter(), (REFUSED,)))
    courier.ring()
    await courier.idle()
    (record,) = caplog.records
    assert (record.levelno, message_of(record)) == (logging.WARNING, "message not delivered")
    assert vars(record)["target_id"] == "p1"
    assert (counted("refused") - before, woken) == (1, [])
    await courier.stop()


async def test_an_outage_ends_one_flight(caplog: pytest.LogCaptureFixture) -> None:
    """The next ring begins another one."""
    courier, outbox, woken = couriers(StorageUnavailable("away"), Delivery(Counter(), (), (NS,)))
    courier.ring()
    await courier.idle()
    assert [message_of(each) for each in caplog.records] == ["messages not delivered, going on"]
    courier.ring()
    await courier.idle()
    assert (outbox.asked, woken) == (2, [NS])
    await courier.stop()


async def test_after_its_stop_it_delivers_nothing() -> None:
    """A ring that comes too late is for the sweeps of others."""
    courier, outbox, _ = couriers()
    await courier.stop()
    courier.ring()
    await courier.idle()
    assert outbox.asked == 0


class Told:
    """Stands where the node would."""

    def __init__(self) -> None:
        self.outbox = Scripted()
        self.courier = self
        self.rung = 0

    def ring(self) -> None:
        self.rung += 1


@pytest.mark.parametrize(
    ("due_in", "messages", "rung", "sooner"),
    [
        (None, 5, 0, None),
        (timedelta(0), 5, 1, None),
        (-SECOND, 5, 1, None),
        (SECOND, 5, 0, SECOND),
        # All that were looked at wait for others: one behind them may be due.
        (None, 1000, 1, None),
        (SECOND, 1000, 0, SECOND),
    ],
)
async def test_a_sweep(
    due_in: timedelta | None, messages: int, rung: int, sooner: timedelta | None
) -> None:
    """It rings for what is due, comes back for what will be, and shows how much waits."""
    node: Any = Told()
    node.outbox.found = WaitingMessages(messages, 2 * SECOND, due_in)
    sweeper = OutboxSweeper(node, interval=SECOND)
    assert await sweeper.run_once() == sooner
    assert node.rung == rung
    assert REGISTRY.get_sample_value("progressor_outbox_waiting") == messages
    assert REGISTRY.get_sample_value("progressor_outbox_oldest_age_ms") == 2000
    await sweeper.stop()
    assert REGISTRY.get_sample_value("progressor_outbox_waiting") == 0
