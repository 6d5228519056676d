"""Bad input is refused before anything is written, by an error that names the field."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from progressor import (
    Client,
    Engine,
    Event,
    HistoryRange,
    InvalidRequest,
    Namespace,
    Remove,
    RetryPolicy,
    SetTimer,
    SyncClient,
)
from tests.acceptance.conftest import MakeClient
from tests.acceptance.support import NS, Act, Scripted

LONG = "x" * 257
NAIVE = datetime(2030, 1, 1)
WEST, EAST = timezone(timedelta(hours=-5)), timezone(timedelta(hours=5))
LATEST = datetime.max.replace(tzinfo=UTC)
EARLIEST = datetime.min.replace(tzinfo=EAST)
NO_JSON = object()

Ask = Callable[[Client], Awaitable[Any]]

REQUESTS: list[tuple[str, Ask]] = [
    ("namespace", lambda c: c.start("", "p")),
    ("namespace", lambda c: c.start("no spaces", "p")),
    ("namespace", lambda c: c.start(".dot", "p")),
    ("namespace", lambda c: c.start(LONG, "p")),
    ("namespace", lambda c: c.start(None, "p")),
    ("namespace", lambda c: c.get("a/b", "p")),
    ("namespace", lambda c: c.trace("a/b", "p")),
    ("namespace", lambda c: c.put("a/b", "p")),
    ("namespace", lambda c: c.remove("a/b", "p")),
    ("namespace", lambda c: c.search(namespace="a/b")),
    ("process_id", lambda c: c.start(NS, "")),
    ("process_id", lambda c: c.start(NS, LONG)),
    ("process_id", lambda c: c.start(NS, "nul\0")),
    ("process_id", lambda c: c.start(NS, "\ud800")),
    ("process_id", lambda c: c.start(NS, 7)),
    ("process_id", lambda c: c.call(NS, "", "act")),
    ("process_id", lambda c: c.get(NS, "")),
    ("process_id", lambda c: c.trace(NS, "")),
    ("process_id", lambda c: c.put(NS, "")),
    ("process_id", lambda c: c.remove(NS, "")),
    ("name", lambda c: c.call(NS, "p", "")),
    ("name", lambda c: c.call(NS, "p", LONG)),
    ("name", lambda c: c.notify(NS, "p", None)),
    ("args", lambda c: c.start(NS, "p", NO_JSON)),
    ("args.deep.1", lambda c: c.call(NS, "p", "act", {"deep": [1, float("nan")]})),
    ("args.deep.1", lambda c: c.call(NS, "p", "act", b'{"deep": [1, 1e400]}')),
    ("args", lambda c: c.start(NS, "p", b"-1E999")),
    ("args.deep.1", lambda c: c.call(NS, "p", "act", b'{"deep": [1, NaN]}')),
    ("args", lambda c: c.start(NS, "p", b"-Infinity")),
    ("context", lambda c: c.start(NS, "p", context=NO_JSON)),
    ("metadata", lambda c: c.start(NS, "p", metadata=["list"])),
    ("metadata.k", lambda c: c.start(NS, "p", metadata={"k": NO_JSON})),
    ("metadata.k", lambda c: c.start(NS, "p", metadata={"k": "nul\0"})),
    ("idempotency_key", lambda c: c.start(NS, "p", idempotency_key="")),
    ("idempotency_key", lambda c: c.start(NS, "p", idempotency_key=LONG)),
    ("idempotency_key", lambda c: c.simple_repair(NS, "p", idempotency_key=3)),
    ("timeout", lambda c: c.start(NS, "p", timeout=0)),
    ("timeout", lambda c: c.call(NS, "p", "act", timeout=-1.5)),
    ("timeout", lambda c: c.notify(NS, "p", "act", timeout=timedelta(0))),
    ("timeout", lambda c: c.repair(NS, "p", timeout=float("nan"))),
    ("timeout", lambda c: c.simple_repair(NS, "p", timeout="soon")),
    ("timeout", lambda c: c.get(NS, "p", timeout=False)),
    ("range", lambda c: c.get(NS, "p", range=(0, 10))),
    ("after", lambda c: c.trace(NS, "p", after="first")),
    ("after", lambda c: c.trace(NS, "p", after=2**63)),
    ("limit", lambda c: c.trace(NS, "p", limit=-1)),
    ("limit", lambda c: c.trace(NS, "p", limit=2**63)),
    ("limit", lambda c: c.trace(NS, "p", limit="all")),
    ("state", lambda c: c.put(NS, "p", state=NO_JSON)),
    ("status", lambda c: c.put(NS, "p", status="init")),
    ("action", lambda c: c.put(NS, "p", action=Remove())),
    ("metadata", lambda c: c.put(NS, "p", metadata=7)),
    ("events", lambda c: c.put(NS, "p", events=7)),
    ("events[1]", lambda c: c.put(NS, "p", events=[{"name": "a"}, {"payload": NO_JSON}])),
    ("events[0]", lambda c: c.put(NS, "p", events=["a text"])),
    ("events[0].name", lambda c: c.put(NS, "p", events=[{"name": ""}])),
    ("events[0]", lambda c: c.put(NS, "p", events=[{"payload": 1, "timestamp": NAIVE}])),
    ("events[0]", lambda c: c.put(NS, "p", events=[{"payload": 1, "timestamp": "yesterday"}])),
    ("events[0]", lambda c: c.put(NS, "p", events=[{"payload": 1, "timestamp": LATEST}])),
    ("events[0]", lambda c: c.put(NS, "p", events=[Event(1, timestamp=LATEST.replace(tzinfo=WEST))])),
    ("events[1]", lambda c: c.put(NS, "p", events=[{"a": 1}, Event(1, timestamp=EARLIEST)])),
    ("status", lambda c: c.search(status="broken")),
    ("metadata", lambda c: c.search(metadata="city")),
    ("limit", lambda c: c.search(limit=0)),
    ("limit", lambda c: c.search(limit=1001)),
    ("limit", lambda c: c.search(limit="ten")),
    ("cursor", lambda c: c.search(cursor="of no search")),
    ("cursor", lambda c: c.search(cursor=7)),
    ("created_after", lambda c: c.search(created_after=NAIVE)),
    ("created_before", lambda c: c.search(created_before="yesterday")),
    ("created_before", lambda c: c.search(created_before=LATEST.replace(tzinfo=WEST))),
]


async def test_every_bad_request_names_its_field(serve: MakeClient) -> None:
    """Each kind of bad input raises InvalidRequest with `field`, and no process comes of it."""
    client = await serve(Scripted().namespace)
    wrong = []
    for place, (field, ask) in enumerate(REQUESTS):
        try:
            await ask(client)
        except InvalidRequest as error:
            if error.field != field:
                wrong.append((place, field, error.field, str(error)))
        except Exception as error:  # noqa: BLE001 - what should not be raised is collected too
            wrong.append((place, field, repr(error)))
        else:
            wrong.append((place, field, "accepted"))
    assert wrong == []
    assert (await client.search()).items == []


VALUES: list[tuple[str, Callable[[], Any]]] = [
    ("offset", lambda: HistoryRange(offset=-1)),
    ("offset", lambda: HistoryRange(offset="1")),
    ("limit", lambda: HistoryRange(limit=-1)),
    ("limit", lambda: HistoryRange(limit="1")),
    ("direction", lambda: HistoryRange(direction="up")),
    ("at", SetTimer),
    ("at", lambda: SetTimer(at=NAIVE)),
    ("at", lambda: SetTimer(at=NAIVE, after=timedelta(1))),
    ("after", lambda: SetTimer(after=5)),
    ("after", lambda: SetTimer(after=timedelta(days=400_000))),
    ("at", lambda: SetTimer(at=LATEST)),
    ("initial_interval", lambda: RetryPolicy(initial_interval=timedelta(0))),
    ("initial_interval", lambda: RetryPolicy(initial_interval=timedelta.max)),
    ("max_attempts", lambda: RetryPolicy(max_attempts=2**63)),
    ("backoff_coefficient", lambda: RetryPolicy(backoff_coefficient=0.5)),
    ("max_interval", lambda: RetryPolicy(max_interval=timedelta(-1))),
    ("max_attempts", lambda: RetryPolicy(max_attempts=0)),
    ("non_retryable.0", lambda: RetryPolicy(non_retryable=(7,))),
    ("attempts", lambda: RetryPolicy(attempts=3)),
    ("namespace", lambda: Namespace("no spaces")),
    ("step_timeout", lambda: Namespace("ns", step_timeout=timedelta(0))),
    ("step_timeout", lambda: Namespace("ns", step_timeout=timedelta(days=999_999_999))),
    ("concurrency", lambda: Namespace("ns", concurrency=0)),
    ("on_zombie", lambda: Namespace("ns", on_zombie="ignore")),
    ("history", lambda: Namespace("ns", history=10)),
    ("handler", lambda: Namespace("ns", handler=object())),
    ("codec", lambda: Namespace("ns", codec=object())),
    ("codec", lambda: Client("postgresql://x", codec=object())),
    ("dsn", lambda: Client("not a url")),
    ("patience", lambda: Client("postgresql://x", patience=timedelta(0))),
    ("connections", lambda: SyncClient("postgresql://x", connections=1)),
    ("scan_interval", lambda: Client("postgresql://x", scan_interval=timedelta(1))),
    ("namespaces", lambda: Engine("postgresql://x", [])),
    ("namespaces", lambda: Engine("postgresql://x", [Namespace("a"), Namespace("a")])),
    ("scan_interval", lambda: Engine("postgresql://x", [Namespace("a")], scan_interval=timedelta(0))),
]


@pytest.mark.parametrize(("field", "make"), VALUES)
def test_bad_values_name_their_field(field: str, make: Callable[[], Any]) -> None:
    """What a user states in code is checked where it is stated."""
    with pytest.raises(InvalidRequest) as caught:
        make()
    assert caught.value.field == field


async def test_the_longest_ids_of_any_script(serve: MakeClient) -> None:
    """A process id and a key of 256 characters of any script are fine."""
    client = await serve(Scripted().namespace)
    process_id, key = "ж" * 256, "鍵" * 256
    assert await client.start(NS, process_id, Act(add=1), idempotency_key=key) == 1
    assert await client.start(NS, process_id, Act(add=1), idempotency_key=key) == 1
    assert (await client.get(NS, process_id)).process_id == process_id
