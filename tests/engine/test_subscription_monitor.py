"""The gauges of subscriptions: how far behind, how much is parked, and what fails."""

from __future__ import annotations

from prometheus_client import REGISTRY

from progressor import Engine, Namespace, Process
from progressor.services.subscription_monitor import SubscriptionMonitor
from tests.support import Tables

till = Namespace("till", state=int, feed=True)


@till.init
async def begin(process: Process[int]) -> None:
    """Begin, with an event."""
    process.state = 0
    process.emit("begun")


def shown(name: str) -> float | None:
    return REGISTRY.get_sample_value(f"progressor_subscription_{name}", {"subscription": "books"})


async def test_what_it_publishes(dsn: str, tables: Tables) -> None:
    """Of each subscription; nothing of one that is gone, nor after its end."""
    # Its own monitor runs beside its scanner, and would publish what it read before.
    async with Engine(dsn, [till], scanner=False) as engine:
        monitor = SubscriptionMonitor(engine.node)
        await monitor.run_once()
        assert shown("age_ms") is None
        async with engine.client.subscription("books"):
            await monitor.run_once()
            assert (shown("age_ms"), shown("parked"), shown("failing")) == (0, 0, 0)
        await engine.client.start("till", "a")
        tables.execute("UPDATE subscription_slices SET failing_since = now(), error = 'no', attempts = 1")
        tables.execute(
            "INSERT INTO parked (name, slice, process_no, namespace, process_id, kind, n, timestamp, "
            "position, attempts) VALUES ('books', 0, 1, 'till', 'a', 'e', 1, now(), 'x', 1)"
        )
        await monitor.run_once()
        assert (shown("age_ms") or 0) > 0
        assert (shown("parked"), shown("failing")) == (1, 1)
        await engine.client.remove_subscription("books")
        await monitor.run_once()
        assert shown("age_ms") is None
        async with engine.client.subscription("books"):
            await monitor.run_once()
        await monitor.stop()
        assert shown("age_ms") is None
