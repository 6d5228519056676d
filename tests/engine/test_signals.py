"""Hints: sent coalesced, heard by those they are for, and survived when the connection dies."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import timedelta

import pytest
import uvloop

from progressor import outages
from progressor.loggers import message_of
from progressor.model import Task, TaskType
from progressor.storage import SessionPool, notifications
from progressor.storage.notifications import Signals
from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Hints
from tests.support import NS, Tables, eventually

ONE, TWO = 1, 2**62 + 1


class Heard:
    """One listening process, and what it heard."""

    def __init__(self, storage: Storage, dsn: str, node_id: int) -> None:
        self.wakes: list[tuple[str, str]] = []
        self.replies: list[int] = []
        self.gaps = self.feeds = 0
        self.signals = Signals(
            storage, dsn, node_id,
            on_wake=lambda *each: self.wakes.append(each),
            on_replies=self._take,
            on_gap=self._gap,
            on_follow=lambda _: None,
            on_feed=self._feed,
        )  # fmt: skip

    def _take(self, task_ids: Iterable[int]) -> None:
        self.replies += task_ids

    def _gap(self) -> None:
        self.gaps += 1

    def _feed(self) -> None:
        self.feeds += 1


@pytest.fixture
async def pair(storage: Storage, dsn: str) -> AsyncIterator[tuple[Heard, Heard]]:
    one, two = Heard(storage, dsn, ONE), Heard(storage, dsn, TWO)
    for each in (one, two):
        await each.signals.start()
        async with asyncio.timeout(30):
            await each.signals.listening.wait()
    yield one, two
    for each in (one, two):
        await each.signals.stop()


async def test_hints_reach_whom_they_are_for(pair: tuple[Heard, Heard]) -> None:
    """A wake goes to one worker, a reply to one client, and to nobody else."""
    one, two = pair
    one.signals.wake(TWO, NS, "calls")
    one.signals.wake(TWO, NS, "timers")
    two.signals.reply(ONE, NS, 7)
    await eventually(lambda: len(two.wakes) == 2 and one.replies, "heard")
    assert sorted(two.wakes) == [(NS, "calls"), (NS, "timers")]
    assert (one.replies, one.wakes, two.replies) == ([7], [], [])


async def test_hints_are_coalesced(
    pair: tuple[Heard, Heard], storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many hints of one moment are one message a channel; the same wake twice is one."""
    one, two = pair
    sent: list[Sequence[tuple[str, str]]] = []
    notify = storage.notify

    async def watched(hints: Sequence[tuple[str, str]]) -> None:
        sent.append(hints)
        await notify(hints)

    monkeypatch.setattr(storage, "notify", watched)
    for task_id in range(700):
        one.signals.wake(TWO, NS, "calls")
        one.signals.reply(TWO, NS, task_id)
    await eventually(lambda: len(two.replies) == 700, "all heard")
    assert two.replies == list(range(700))
    assert two.wakes == [(NS, "calls")]
    assert len(sent) == 1


async def test_a_stop_sends_what_was_on_its_way(
    pair: tuple[Heard, Heard], storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction of some hints is under way, and hangs, as their sender stops: they leave."""
    one, two = pair
    notify, hangs = storage.notify, asyncio.Event()

    async def hanging(_hints: Sequence[tuple[str, str]]) -> None:
        hangs.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(storage, "notify", hanging)
    one.signals.reply(TWO, NS, 7)
    await hangs.wait()
    monkeypatch.setattr(storage, "notify", notify)
    await one.signals.stop()
    await eventually(lambda: two.replies == [7], "heard")


def task(task_id: int, reply_to: int | None = None) -> Task:
    return Task(NS, "p1", task_id, TaskType.CALL, "act", reply_to=reply_to)


async def test_hints_behind_a_transaction(pair: tuple[Heard, Heard], storage: Storage) -> None:
    """They are heard as others are; those that are lost there leave in a message of their own."""
    one, two = pair
    wakes = one.signals.wakes_behind({NS: TWO}, "calls")
    assert one.signals.replies_behind([task(1), task(2, reply_to=ONE)]) is None
    replies = one.signals.replies_behind([task(3, reply_to=TWO), task(4)])
    assert replies is not None
    async with storage._connections.acquire() as session:
        await session.transact({"server_version": {}}, wakes)
    await eventually(lambda: two.wakes == [(NS, "calls")], "heard")
    replies.landed(None)
    await eventually(lambda: two.replies == [3], "heard")


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_hint_of_the_feed_that_is_due_at_once(
    dsn: str, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """It leaves with the save of the same turn, on each event loop."""

    async def saved() -> Hints | None:
        signals = Heard(Storage(SessionPool(dsn, limit=1), patience=timedelta(seconds=1)), dsn, ONE).signals
        signals.fed()
        return signals.replies_behind([])

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(saved()) is not None


async def test_a_hint_of_the_feed_leaves_behind_a_transaction(
    pair: tuple[Heard, Heard], storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With those of a save, if its time has nearly come; and not once more by itself."""
    monkeypatch.setattr(notifications, "_FEED_PAUSE", 30)
    monkeypatch.setattr(notifications, "_FEED_EARLY", 30)
    one, two = pair
    two.signals.follow_feed()
    while not two.feeds:
        await storage.notify([("progressor_feed", "fed")])
        await asyncio.sleep(0.01)
    one.signals._feed_hinted_at = asyncio.get_running_loop().time()
    one.signals.fed()
    behind = one.signals.replies_behind([task(1)])
    assert behind is not None
    assert one.signals.replies_behind([task(1)]) is None
    before = two.feeds
    async with storage._connections.acquire() as session:
        await session.transact({"server_version": {}}, behind)
    await eventually(lambda: two.feeds > before, "heard")


async def test_a_dead_listener_is_made_anew(
    pair: tuple[Heard, Heard],
    tables: Tables,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A listener whose connection dies comes back, and says that something may have been missed."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(outages, "_CALM", 0)
    one, two = pair
    gaps = (one.gaps, two.gaps)
    tables.execute(
        """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'progressor listener'
        """
    )
    await eventually(lambda: (one.gaps, two.gaps) == (gaps[0] + 1, gaps[1] + 1), "both came back")
    one.signals.wake(TWO, NS, "calls")
    two.signals.wake(ONE, NS, "calls")
    await eventually(lambda: one.wakes == two.wakes == [(NS, "calls")], "heard again")
    for message in ("listener lost", "listener made anew"):
        said = [record.channel for record in caplog.records if message_of(record) == message]
        assert sorted(said) == sorted([one.signals.channel, two.signals.channel]), message


async def test_what_is_no_hint_is_ignored(
    pair: tuple[Heard, Heard], tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may connect may send anything: it is said once, without its text, and nothing ends."""
    one, two = pair
    strange = ["", "reply", "reply x", "reply 1 -2", f"reply {'9' * 7000}", "wake", "wake calls", "hello"]
    strange += [
        "wake all shop",
        "\u0663 \N{PILE OF POO}",
        "secret " * 1000,
        " ",
        "reply \u0663",
        "sign sign",
    ]
    for payload in strange:
        tables.execute("SELECT pg_notify(%s, %s)", two.signals.channel, payload)
    one.signals.wake(TWO, NS, "calls")
    one.signals.reply(TWO, NS, 7)
    await eventually(lambda: two.wakes and two.replies, "heard behind all that")
    assert (two.wakes, two.replies, two.gaps) == ([(NS, "calls")], [7], 1)
    said = [
        record for record in caplog.records if message_of(record) == "notification not understood, ignored"
    ]
    assert [(record.channel, record.characters) for record in said] == [(two.signals.channel, 0)]


async def test_a_defect_does_not_end_listener_and_notifier(
    pair: tuple[Heard, Heard],
    storage: Storage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever they meet, both go on, and say it; the listener looks for what it may have missed."""
    one, two = pair
    notify, take = storage.notify, two.signals._take

    async def fail_once(hints: Sequence[tuple[str, str]]) -> None:
        monkeypatch.setattr(storage, "notify", notify)
        raise KeyError("a defect")

    def take_once(channel: str, payload: str) -> bool:
        monkeypatch.setattr(two.signals, "_take", take)
        raise KeyError("a defect")

    monkeypatch.setattr(storage, "notify", fail_once)
    one.signals.wake(TWO, NS, "calls")
    await eventually(lambda: "background task failed" in caplog.text, "the notifier failed")
    monkeypatch.setattr(two.signals, "_take", take_once)
    one.signals.wake(TWO, NS, "calls")
    await eventually(lambda: two.gaps == 2, "the listener failed and came back")
    one.signals.wake(TWO, NS, "timers")
    await eventually(lambda: two.wakes == [(NS, "timers")], "heard again")
    said = [record.part for record in caplog.records if message_of(record) == "background task failed"]
    assert said == ["notifier", "listener"]


async def test_a_silent_listener_is_made_anew(
    storage: Storage, dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that hears nothing, not even its own sign, is taken for dead and replaced."""
    monkeypatch.setattr(notifications, "_SIGN_INTERVAL", 0.02)
    monkeypatch.setattr(notifications, "_SILENCE", 0.1)
    heard = Heard(storage, dsn, ONE)

    async def say_nothing(*_: object) -> None:
        return

    monkeypatch.setattr(storage, "notify", say_nothing)
    await heard.signals.start()
    await eventually(lambda: heard.gaps >= 3, "made anew, again and again")
    await heard.signals.stop()


async def test_the_own_sign_keeps_a_listener(
    storage: Storage, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing else is said, the sign that a listener sends to itself shows that it hears."""
    monkeypatch.setattr(notifications, "_SIGN_INTERVAL", 0.02)
    heard = Heard(storage, dsn, ONE)
    signs = 0
    take = heard.signals._take

    def counted(channel: str, payload: str) -> bool:
        nonlocal signs
        signs += 1
        return take(channel, payload)

    monkeypatch.setattr(heard.signals, "_take", counted)
    await heard.signals.start()
    await eventually(lambda: signs >= 3, "its own signs")
    assert (heard.gaps, heard.wakes, heard.replies) == (1, [], [])
    await heard.signals.stop()
