"""Wake and reply hints over LISTEN/NOTIFY.

Rule: a hint is never the truth. Whatever waits for one also looks at the tables, more slowly; a lost hint
costs time and nothing else, and none is sent before its commit. Hints leave
coalesced, in a transaction of their own: NOTIFY inside the step's transaction would serialise all commits.

Each engine or client process listens on a channel of its own, and on that of another process while it waits
for a task which that process asked for first. A listener that receives nothing, not even the sign that it
sends to itself, is taken for dead and opened again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

import psycopg

from progressor import metrics
from progressor.errors import ProgressorError
from progressor.loggers import Logger
from progressor.model import Task, shown_id
from progressor.outages import Outage, OutageLines, cause_of
from progressor.storage.operations import Storage
from progressor.storage.params import hint_columns
from progressor.storage.postgres.ear import Ear, listening_at
from progressor.storage.postgres.pipeline import Hints
from progressor.storage.postgres.server_identity import said_by
from progressor.storage.values import Kind
from progressor.supervision import Background, watched

log = Logger("progressor.signals")

# NOTIFY carries less than 8,000 bytes.
_MOST_IDS = 300
# Seconds without a notification: after which a sign is sent; after which the listener is opened again.
_SIGN_INTERVAL, _SILENCE = 5.0, 16.0
# Seconds that `stop` may take to send the last hints.
_LAST_WORDS = 3.0
# Seconds between two tries to listen.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_LINES = OutageLines("hints lost", "hints still lost", "hints get through again")
_HEARING = OutageLines("listener lost", "listener still lost", "listener made anew")
# A bigint has no more digits.
_MOST_DIGITS = 19
_SIGN = "sign"
_FEED = "progressor_feed"
# Seconds between two hints of one process that the feed goes on; how much earlier one leaves behind a
# transaction, where it costs least.
_FEED_PAUSE, _FEED_EARLY = 0.02, 0.01


def channel_of(node_id: int) -> str:
    """Return the channel on which a worker or client process listens."""
    return f"progressor_{shown_id(node_id)}"


class _Outgoing:
    """Hints that leave together; those that say the same leave once."""

    def __init__(self) -> None:
        # Keyed by channel and text: their namespaces, "-" for those of none.
        self._wakes: dict[tuple[str, str], str] = {}
        # Keyed by channel and task: the namespaces.
        self._replies: dict[str, dict[int, str]] = {}

    def wake(self, node_id: int, namespace: str, kind: Kind) -> None:
        self._wakes[channel_of(node_id), f"wake {kind} {namespace}"] = namespace

    def say(self, channel: str, text: str) -> None:
        """Add a hint of no namespace."""
        self._wakes[channel, text] = "-"

    def reply(self, node_id: int, namespace: str, task_id: int) -> None:
        self._replies.setdefault(channel_of(node_id), {})[task_id] = namespace

    def add(self, others: _Outgoing) -> None:
        self._wakes |= others._wakes
        for channel, ids in others._replies.items():
            self._replies.setdefault(channel, {}).update(ids)

    def messages(self) -> list[tuple[str, str]]:
        """Return channels and texts."""
        messages = list(self._wakes)
        for channel, ids in self._replies.items():
            listed = [str(task_id) for task_id in ids]
            for start in range(0, len(listed), _MOST_IDS):
                part = " ".join(listed[start : start + _MOST_IDS])
                messages.append((channel, f"reply {part}"))
        return messages

    def took(self, began: float) -> None:
        """Measure how long they took to leave."""
        for namespace in set(self._wakes.values()):
            metrics.took(metrics.NOTIFICATION, began, namespace, "wake")
        for namespace in {name for ids in self._replies.values() for name in ids.values()}:
            metrics.took(metrics.NOTIFICATION, began, namespace, "reply")


class Signals:
    """The hints that this process sends to others, and those that it receives."""

    def __init__(
        self,
        storage: Storage,
        dsn: str,
        node_id: int,
        *,
        listens_at: str | None = None,
        on_wake: Callable[[str, Kind], None],
        on_replies: Callable[[Iterable[int]], None],
        on_gap: Callable[[], None],
        on_follow: Callable[[int], None],
        on_feed: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._dsn = listens_at or dsn
        # An outage of a listener's own URL is no outage of the other connections.
        self._is_apart = listens_at is not None
        self._node_id = node_id
        self.channel = channel_of(node_id)
        self._on_wake = on_wake
        self._on_replies = on_replies
        self._on_gap = on_gap
        self._on_follow = on_follow
        self._on_feed = on_feed
        self._feed_hint: asyncio.Handle | None = None
        self._feed_hint_due = 0.0
        self._feed_hinted_at = 0.0
        # By channel: tasks that another process asked for first, and that are waited for here.
        self._follows: dict[str, set[int]] = {}
        self._outgoing = _Outgoing()
        self._something = asyncio.Event()
        self._background = Background()
        self._outage = Outage(log, _LINES)
        self._hearing = Outage(log, _HEARING, channel=self.channel)
        self.listening = asyncio.Event()

    async def start(self) -> None:
        self._background.keep("listener", self._listen)
        self._background.keep("notifier", self._send)

    async def stop(self) -> None:
        """Stop listening, and send the hints that are left."""
        if self._feed_hint is not None:
            self._feed_hint.cancel()
        await self._background.stop()
        with suppress(TimeoutError):
            # A server that does not answer must not hold up the stop: waiters find out by looking.
            async with asyncio.timeout(_LAST_WORDS):
                await self._flush()

    def wake(self, node_id: int, namespace: str, kind: Kind) -> None:
        """Hint to a worker process that a namespace has work."""
        self._outgoing.wake(node_id, namespace, kind)
        self._something.set()

    def reply(self, node_id: int, namespace: str, task_id: int) -> None:
        """Hint to a client process that a task has ended."""
        self._outgoing.reply(node_id, namespace, task_id)
        self._something.set()

    def wakes_behind(self, workers: Mapping[str, int], kind: Kind) -> Hints:
        """Return the hints that wake these workers, one for each namespace, behind a transaction."""
        outgoing = _Outgoing()
        for namespace, node_id in workers.items():
            outgoing.wake(node_id, namespace, kind)
        return self._behind(outgoing)

    def replies_behind(self, tasks: Iterable[Task]) -> Hints | None:
        """Return the hints that these have ended, for the other processes that asked; None without any.

        What the feed has got before goes with them if its time has nearly come.
        """
        outgoing, has_any = _Outgoing(), False
        if (
            self._feed_hint is not None
            and asyncio.get_running_loop().time() >= self._feed_hint_due - _FEED_EARLY
        ):
            self._feed_hint.cancel()
            self._say_fed(outgoing)
            has_any = True
        for task in tasks:
            if task.reply_to is not None and task.reply_to != self._node_id:
                outgoing.reply(task.reply_to, task.namespace, task.task_id)
                has_any = True
        return self._behind(outgoing) if has_any else None

    def _behind(self, outgoing: _Outgoing) -> Hints:
        return Hints(hint_columns(outgoing.messages()), partial(self._landed, outgoing))

    def _landed(self, outgoing: _Outgoing, began: float | None) -> None:
        if began is None:
            # Sent anew, in a message of their own.
            self._outgoing.add(outgoing)
            self._something.set()
        else:
            outgoing.took(began)

    def follow(self, node_id: int, task_id: int) -> None:
        """Listen for the end of a task on the channel of the process that asked for it."""
        channel = channel_of(node_id)
        if channel != self.channel:
            self._follows.setdefault(channel, set()).add(task_id)
            self._rouse()

    def unfollow(self, node_id: int, task_id: int) -> None:
        """Stop listening for the end of a task."""
        channel = channel_of(node_id)
        tasks = self._follows.get(channel, set())
        tasks.discard(task_id)
        if not tasks:
            # The listener notices at its next notification, and need not be roused for that.
            self._follows.pop(channel, None)

    def ended(self, task_id: int) -> None:
        """Hint to the processes that follow a task of this one."""
        self._outgoing.say(self.channel, f"ended {task_id}")
        self._something.set()

    def fed(self) -> None:
        """Hint to readers of the feed that it goes on; what follows within 20 ms is one hint."""
        if self._feed_hint is None:
            loop = asyncio.get_running_loop()
            self._feed_hint_due = max(self._feed_hinted_at + _FEED_PAUSE, loop.time())
            self._feed_hint = loop.call_at(self._feed_hint_due, watched("notifier", self._hint_feed))

    def _hint_feed(self) -> None:
        self._say_fed(self._outgoing)
        self._something.set()

    def _say_fed(self, outgoing: _Outgoing) -> None:
        self._feed_hint, self._feed_hinted_at = None, asyncio.get_running_loop().time()
        outgoing.say(_FEED, "fed")

    def follow_feed(self) -> None:
        """Listen for hints that the feed goes on, from now on."""
        if _FEED not in self._follows:
            self._follows[_FEED] = set()
            self._rouse()

    def _rouse(self) -> None:
        """Send a sign to the own channel, which rouses the listener."""
        self._outgoing.say(self.channel, _SIGN)
        self._something.set()

    async def _send(self) -> None:
        while True:
            await self._something.wait()
            await self._flush()

    async def _flush(self) -> None:
        self._something.clear()
        outgoing, self._outgoing = self._outgoing, _Outgoing()
        messages = outgoing.messages()
        if not messages:
            return
        began = time.monotonic()
        try:
            await self._storage.notify(messages)
        except asyncio.CancelledError:
            # A stop sends them, in its last words.
            self._outgoing.add(outgoing)
            raise
        except ProgressorError as error:
            self._outage.failed(cause_of(error))
            return
        self._outage.worked()
        outgoing.took(began)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        pause, since = _FIRST_PAUSE, 0.0
        while True:
            self.listening.clear()
            try:
                async with listening_at(self._dsn) as ear:
                    await ear.listen(self.channel)
                    since = loop.time()
                    # The ends that were hinted while nobody listened are found by looking.
                    self._on_gap()
                    self.listening.set()
                    self._storage.outage.worked(in_part=True)
                    await self._hear(ear)
                self._hearing.failed("it fell silent")
            except (psycopg.Error, OSError) as error:
                if self.listening.is_set() or self._is_apart:
                    self._hearing.failed(said_by(error))
                else:
                    self._storage.outage.failed(said_by(error), operation="listen")
            if self.listening.is_set() and loop.time() - since > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _hear(self, ear: Ear) -> None:
        """Act on notifications; return when not even the own sign came back."""
        loop = asyncio.get_running_loop()
        heard_at, strange = loop.time(), 0
        followed: dict[str, set[int]] = {}
        while loop.time() - heard_at < _SILENCE:
            await self._attend(ear, followed)
            for notification in await ear.next(_SIGN_INTERVAL):
                heard_at = loop.time()
                self._hearing.worked()
                if not self._take(notification.channel, notification.payload):
                    strange += 1
                    if strange == 1:
                        # Any role that may connect may send one: logged once per connection, without its
                        # text.
                        size = len(notification.payload)
                        fields = {"channel": self.channel, "characters": size, "pid": notification.pid}
                        log.warning("notification not understood, ignored", extra=fields)
            if loop.time() - heard_at >= _SIGN_INTERVAL:
                self._rouse()

    async def _attend(self, ear: Ear, followed: dict[str, set[int]]) -> None:
        """Listen on the channels that are followed now, and bring `followed` up to date."""
        for channel in followed.keys() - self._follows.keys():
            del followed[channel]
            await ear.unlisten(channel)
        for channel, tasks in list(self._follows.items()):
            if channel not in followed:
                await ear.listen(channel)
            for task_id in tasks - followed.get(channel, set()):
                # From here on its end is hinted; if it has ended before, a look finds that.
                self._outgoing.say(channel, f"follow {task_id}")
                self._something.set()
                self._on_replies([task_id])
            followed[channel] = set(tasks)

    def _take(self, channel: str, payload: str) -> bool:
        """Act on a hint; return False if it is not understood."""
        if channel == _FEED:
            self._on_feed()
            return True
        if channel != self.channel:
            match payload.split(" "):
                case ["reply" | "ended", *ids] if all(map(_is_id, ids)):
                    # Other tasks of that process do not concern this one.
                    self._on_replies(self._follows.get(channel, set()) & set(map(int, ids)))
            return True
        match payload.split(" "):
            case ["wake", "calls" | "timers" as kind, namespace]:
                self._on_wake(namespace, kind)
            case ["reply", *ids] if ids and all(map(_is_id, ids)):
                self._on_replies(int(task_id) for task_id in ids)
            case ["follow", task_id] if _is_id(task_id):
                self._on_follow(int(task_id))
            case ["ended", _]:
                # Sent by this process, for its followers.
                return True
            case [only]:
                return only == _SIGN
            case _:
                return False
        return True


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
