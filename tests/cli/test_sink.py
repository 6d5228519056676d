"""sink, subscriptions and parked: events leave the database, and operators mend what fails."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from progressor import Engine, FeedEvent, InvalidRequest, Namespace, NonRetryable, Process, RetryPolicy
from progressor.client.feed import forwarder
from progressor.loggers import message_of
from progressor.sinks import service
from progressor.sinks.config import read_sinks
from progressor.sinks.kafka import KafkaOptions
from tests.cli.conftest import Ended, Running, run
from tests.support import Tables, eventually

till = Namespace("till", state=int, feed=True)
QUICK = RetryPolicy(
    initial_interval=timedelta(milliseconds=1), max_interval=timedelta(milliseconds=5), max_attempts=2
)
_TABLE = "CREATE TABLE public.got (id text PRIMARY KEY, said jsonb NOT NULL)"
_FUNCTION = """
CREATE FUNCTION public.on_event(event jsonb) RETURNS void LANGUAGE sql
AS $$ INSERT INTO public.got VALUES (event ->> 'id', event) $$
"""


@till.init
async def begin(process: Process[int], many: int = 1) -> None:
    """Begin, with so many events."""
    process.state = 0
    for _ in range(many):
        process.emit("begun")


@till.call
async def add(process: Process[int]) -> None:
    """Add an event."""
    process.emit("added")


@pytest.fixture
async def engine(dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """An engine; operators' wishes are looked for often."""
    monkeypatch.setattr(forwarder, "_LOOK", 0.02)
    async with Engine(dsn, [till]) as engine:
        yield engine


def lines(path: Path) -> list[tuple[str, int]]:
    """The events of a file."""
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [(each["subject"], int(each["sequence"])) for each in found]


async def test_to_a_file_and_to_a_function(
    engine: Engine, dsn: str, tables: Tables, tmp_path: Path, spawn: Callable[..., Running]
) -> None:
    """Each by its own table; the next one goes on where this one ended."""
    path, config = tmp_path / "events.ndjson", tmp_path / "sinks.toml"
    tables.execute(_TABLE)
    tables.execute(_FUNCTION)
    config.write_text(
        '[sinks.lines]\ntype = "ndjson"\npath = "env:LINES"\nstart = "beginning"\n'
        '[sinks.rows]\ntype = "function"\nfunction = "public.on_event"\nnamespaces = ["till"]\n'
        'events = ["added"]\nkinds = ["event", "created"]\nstart = "beginning"\n'
    )

    def rows() -> set[tuple[str, str]]:
        found = tables.execute("SELECT said ->> 'subject' AS of, said ->> 'type' AS type FROM public.got")
        return {(row["of"], row["type"]) for row in found}

    await engine.client.start("till", "a", 2)
    first = spawn("sink", "--config", str(config), PROGRESSOR_DATABASE_URL=dsn, LINES=str(path))
    await eventually(lambda: lines(path) == [("a", 1), ("a", 2)], "what was stored")
    await engine.client.call("till", "a", "add")
    await eventually(lambda: lines(path)[-1] == ("a", 3), "what came")
    wanted = {("a", "till.progressor.created"), ("a", "till.added")}
    await eventually(lambda: rows() == wanted, "the rows of the function")
    assert await asyncio.to_thread(first.end_by, signal.SIGTERM) == 0
    await engine.client.call("till", "a", "add")
    second = spawn("sink", "--config", str(config), PROGRESSOR_DATABASE_URL=dsn, LINES=str(path))
    await eventually(lambda: ("a", 4) in lines(path), "what came meanwhile")
    assert await asyncio.to_thread(second.end_by, signal.SIGTERM) == 0
    assert lines(path) == [("a", n) for n in (1, 2, 3, 4)]


async def test_a_sink_that_cannot_begin(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says why, and it is no defect; it begins once that is mended, and others never waited."""
    monkeypatch.setattr(service, "_PAUSE", 0.02)
    path = tmp_path / "events.ndjson"
    text = f'type = "ndjson"\npath = "{path}"\nstart = "beginning"\n'
    async with Engine(dsn, [Namespace("till", state=int)]) as engine:
        sinks = service.SinksService(
            engine.client, read_sinks(f'[sinks.lines]\n{text}namespaces = ["till"]', {})
        )
        sinks.start()
        await eventually(lambda: caplog.records, "it says so")
        async with Engine(dsn, [till]) as with_feed:
            await with_feed.client.start("till", "a")
            await eventually(lambda: lines(path) == [("a", 1)], "it has begun")
        await sinks.stop()
    said = [message_of(each) for each in caplog.records if each.name == "progressor.sinks"]
    assert said == ["sink does not work, it is tried again"]
    assert "has no feed" in str(vars(caplog.records[0])["cause"])
    assert "background task failed" not in caplog.text


class Picky:
    """A sink that refuses the first event of `b`."""

    def __init__(self) -> None:
        self.got: list[tuple[str, int | None]] = []
        self.refuses = True

    async def send(self, events: Sequence[FeedEvent]) -> None:
        found = [(each.process_id, each.event_id) for each in events]
        if self.refuses and ("b", 1) in found:
            raise NonRetryable("b is odd")
        self.got += found

    async def close(self) -> None:
        """Nothing is open."""


async def ask(dsn: str, *args: str) -> Ended:
    """A command, in a subprocess."""
    return await asyncio.to_thread(run, *args, PROGRESSOR_DATABASE_URL=dsn)


async def test_operators(engine: Engine, dsn: str) -> None:
    """They see what fails, park it, try it again, skip it, move and remove the subscription."""
    client, sink = engine.client, Picky()
    assert "no subscription" in (await ask(dsn, "subscriptions")).err
    assert "nothing is parked" in (await ask(dsn, "parked")).err
    for name in "abc":
        await client.start("till", name, 2)
    forwarding = asyncio.create_task(client.forward("books", sink, start="beginning", retries=QUICK))
    await eventually(lambda: sink.got == [("a", 1), ("a", 2)], "what comes before")
    shown = " ".join((await ask(dsn, "subscriptions")).out.split())
    assert "books" in shown
    assert "NonRetryable: b is odd" in shown
    assert (await ask(dsn, "subscriptions", "park", "books")).status == 0
    await eventually(lambda: ("c", 2) in sink.got, "what comes behind")
    (known,) = (await ask(dsn, "subscriptions", "--json")).json
    assert (known["name"], known["parked"], known["parked_processes"]) == ("books", 2, 1)
    first, second = (await ask(dsn, "parked", "--json")).json
    assert (first["process_id"], first["kind"], first["n"], first["error"]) == (
        "b",
        "event",
        1,
        "NonRetryable: b is odd",
    )
    assert second["error"] is None
    assert "waits behind the one before" in " ".join((await ask(dsn, "parked")).out.split())
    assert (await ask(dsn, "parked", "retry", "books", str(first["parked_no"]), "--json")).json == 2
    number = str(first["parked_no"])
    skipped = await ask(dsn, "parked", "skip", "books", number, "--reason", "a test order")
    assert skipped.status == 0
    await eventually(lambda: ("b", 2) in sink.got, "what waited behind it")
    assert ("b", 1) not in sink.got
    (act, *_) = [entry for entry in (await client.audit()).entries if entry.verb == "skip_parked"]
    assert (act.subject, act.namespace, act.process_id, act.reason) == (
        "books",
        "till",
        "b",
        "a test order",
    )
    for number in ("0", str(2**63)):
        wrong = await ask(dsn, "parked", "retry", "books", number)
        assert (wrong.status, "NUMBER must be" in wrong.err) == (2, True), wrong.err
    sink.refuses = False
    for moment in ((datetime.now(UTC) + timedelta(days=1)).isoformat(), "beginning"):
        assert (await ask(dsn, "subscriptions", "move", "books", moment)).status == 0
    await eventually(lambda: ("b", 1) in sink.got, "from the beginning")
    assert (await ask(dsn, "subscriptions", "remove", "books")).status == 0
    with pytest.raises(Exception, match="it was removed"):
        async with asyncio.timeout(30):
            await forwarding
    for args in (
        ("subscriptions", "move", "bookz", "latest"),
        ("subscriptions", "remove", "books"),
        ("subscriptions", "park", "books"),
        ("parked", "retry", "books"),
        ("parked", "--subscription", "books"),
    ):
        refused = await ask(dsn, *args)
        assert (refused.status, "there is no subscription" in refused.err) == (2, True), refused
    wrong = await ask(dsn, "subscriptions", "move", "books", "soon")
    assert (wrong.status, "TO must be latest, beginning, a moment" in wrong.err) == (2, True), wrong.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[sinks", "it is no TOML"),
        ("", "it must have tables"),
        ("x = 1\n[sinks.a]\ntype='ndjson'\npath='-'", "it must have tables"),
        ("[sinks]\na = 1", "sinks.a must be a table with a type"),
        ("[sinks.a]\ntype='smtp'", "sinks.a.type must be"),
        ("[sinks.a]\ntype='ndjson'", "sinks.a.path: Field required"),
        ("[sinks.a]\ntype='ndjson'\npath='-'\npth='x'", "sinks.a.pth: Extra inputs"),
        ("[sinks.a]\ntype='ndjson'\npath='-'\nkinds=['gone']", "sinks.a.kinds.0"),
        ("[sinks.a]\ntype='ndjson'\npath='-'\non_failure='drop'", "sinks.a.on_failure"),
        (
            "[sinks.a]\ntype='ndjson'\npath='env:NOT_THERE'",
            "sinks.a.path: the environment has no NOT_THERE",
        ),
        ("[sinks.a]\ntype='function'\nfunction='a b'", "sinks.a.function"),
        ("[sinks.a]\ntype='function'\nfunction='a'\nslices=2", "sinks.a.slices: a function has one"),
    ],
)
def test_files_that_are_refused(text: str, said: str) -> None:
    """Each with the table and the key."""
    with pytest.raises(InvalidRequest) as caught:
        read_sinks(text, {})
    assert said in str(caught.value)


def test_no_secret_is_shown(tmp_path: Path, progressor: Callable[..., Ended]) -> None:
    """An error names the key alone; what the environment has stands in for `env:`."""
    text = (
        "[sinks.k]\ntype='kafka'\nbrokers='b:9092'\ntopic='t t'\non_failure='park'\n"
        "options={'sasl.password'='env:PASSWORD'}"
    )
    config = tmp_path / "sinks.toml"
    config.write_text(text)
    refused = progressor("sink", "--config", str(config), "--check", PASSWORD="hunter2")
    assert refused.status == 2
    assert "sinks.k.topic" in refused.err
    assert "hunter2" not in refused.err
    (found,) = read_sinks(text.replace("t t", "t"), {"PASSWORD": "hunter2"})
    assert isinstance(found.options, KafkaOptions)
    assert found.options.options == {"sasl.password": "hunter2"}
    config.write_text(text.replace("t t", "t"))
    checked: Any = progressor("sink", "--config", str(config), "--check", PASSWORD="hunter2")
    assert (checked.status, "has these sinks: k" in checked.out) == (0, True)
    assert progressor("sink", "--config", str(tmp_path / "none.toml")).status == 2
