"""What the storage machine draws: requests, outcomes, timers, losses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st

from progressor.config import NO_RATES, Rates, Retention
from progressor.model import Failure, Intent, Outcome, Rejection, Remove, Success, TaskType
from progressor.storage.values import Request
from progressor.timers import SetTimer, UnsetTimer, keeping
from tests.model.oracle import RATE, Key, Policy
from tests.support import SECOND, T0, events, request

NAMESPACES = ("shop.a", "shop.b")
NOWHERE = ("shop.unknown", "p1")
KEYS = [(namespace, process_id) for namespace in NAMESPACES for process_id in ("p1", "p2")]
WORKERS = (1, 2, 3)
CLIENT = 61


def often(*usual: st.SearchStrategy[Any], rarely: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One of the usual ones, and now and then the other."""
    return st.integers(0, 9).flatmap(lambda place: rarely if place == 7 else usual[place % len(usual)])


seldom = often(st.just(False), rarely=st.just(True))
keys = st.sampled_from([*KEYS * 7, NOWHERE])
workers = st.sampled_from(WORKERS)
losses = st.sampled_from(["", "", "", "early", "late"])
# In the middle of several transactions; and between the look and the commit, or by a result that PostgreSQL
# does not take.
save_losses = st.sampled_from(["", "", "early", "late", "torn", "torn"])
flight_losses = st.sampled_from([*[""] * 8, "early", "torn", "late", "poison", "poison"])
places = st.integers(0, 7)
DAY = timedelta(days=1)
# By the worker of a request, and by whether anybody waits for it.
PRIORITIES = {(None, True): 10, (None, False): -10, (1, True): 1}
# By the worker of a claim: not a draw of its own, for most claims know none.
RATES = {1: NO_RATES, 2: NO_RATES, 3: Rates(RATE, RATE)}
# How long answers of removed processes are kept, to the moment.
long_waits = st.sampled_from([timedelta(0), timedelta(minutes=10), DAY - SECOND, DAY, DAY + SECOND])
# Bounds of walks, and times after which what has just ended is as old as that, or not quite.
HOUR = timedelta(hours=1)
_kept = st.sampled_from([HOUR, HOUR, HOUR + 5 * SECOND])
retentions = st.one_of(
    st.builds(
        Retention, tasks=_kept, keys=st.sampled_from([None, 2 * HOUR, 9 * DAY]), events=st.none() | _kept
    ),
    st.builds(Retention, tasks=st.none() | _kept, events=st.sampled_from([1, 2])),
)
until_walks = st.sampled_from(
    [timedelta(0), HOUR - 5 * SECOND, HOUR, HOUR + SECOND, HOUR + SECOND, 2 * HOUR, DAY]
)
# The most that one round looks at, reads, locks and deletes.
round_sizes = st.sampled_from([(500, 2000, 100, 1000), (1, 1, 1, 1), (2, 3, 1, 2), (4, 2, 2, 1)])
# The namespaces with a feed; and who reads it.
feedings = st.sampled_from([*map(frozenset, (NAMESPACES, NAMESPACES[:1], NAMESPACES[1:], ()))])
feed_reads = st.sampled_from(["walk", "walk", "follow", "number", "all"])
waits = st.sampled_from([SECOND, 5 * SECOND, 31 * SECOND, 71 * SECOND])
names = st.sampled_from(["", "", "", "", "b", "c"])
_timers = st.builds(
    SetTimer, after=st.sampled_from([timedelta(0), SECOND, 5 * SECOND]), remove=seldom, name=names
) | st.builds(SetTimer, at=st.sampled_from([T0, T0 + 20 * SECOND]), name=names)
# Those with one of the names recur: storage keeps an occurrence with their tasks, unread.
timers = _timers.map(lambda timer: keeping(timer, b"{}" if timer.name == "b" else None))
unset = st.builds(UnsetTimer, name=names)
several_timers = st.lists(timers | unset, max_size=3, unique_by=lambda timer: timer.name).map(tuple)
actions = often(st.none(), timers, timers, timers, unset | several_timers, rarely=st.just(Remove()))
put_timers = st.lists(timers, max_size=2, unique_by=lambda timer: timer.name).map(tuple)
intents = st.builds(
    Intent,
    events=st.integers(0, 2).map(events),
    action=actions,
    response=st.none() | st.just(b"1"),
    aux_state=st.none() | st.sampled_from([b"", b"state"]),
    metadata=st.none() | st.just({"plan": "pro"}),
)
_successes = st.builds(Success, intents)
outcomes: st.SearchStrategy[Outcome] = often(
    _successes,
    _successes,
    _successes,
    st.builds(Failure, st.just("ValueError: no"), retryable=st.booleans()),
    rarely=st.just(Rejection("no", {"why": 1})),
)


# None: its handler goes on.
_rejections = st.just(Rejection("no", {"why": 1}))
flight_ends: st.SearchStrategy[Outcome | None] = often(
    _successes, outcomes, _successes, _rejections, rarely=st.none()
)


policies = st.builds(
    Policy,
    paused=seldom,
    on_zombie=st.sampled_from(["policy", "retry", "error"]),
    zombie_attempts=st.sampled_from([2, 1]),
    max_attempts=st.sampled_from([2, None]),
    pause=st.sampled_from([*[None] * 5, 5 * SECOND]),
)


# A message: its target, whether it starts that, and the key that its handler gives.
Sent = tuple[Key, bool, str | None]
sent: st.SearchStrategy[Sent] = st.tuples(st.sampled_from(KEYS), seldom, st.sampled_from([None, None, "k"]))


@st.composite
def requests(draw: st.DrawFn, *kinds: TaskType) -> Request:
    """A request with a fresh key, or with one that may have been used, for the same thing or another."""
    namespace, process_id = draw(keys)
    fields: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        fields = {"key": draw(st.sampled_from("kl")), "request_hash": draw(st.sampled_from([b"1", b"2"]))}
    if draw(st.booleans()):
        fields["reply_to"] = CLIENT
    worker_id, kind = draw(st.none() | workers), draw(st.sampled_from(kinds))
    if kind is not TaskType.REPAIR:
        # Not a draw of its own: most requests have none.
        fields["priority"] = PRIORITIES.get((worker_id, "reply_to" in fields), 0)
    return request(process_id, kind, namespace=namespace, worker_id=worker_id, **fields)


def batches(*kinds: TaskType, by: Callable[[Request], Any]) -> st.SearchStrategy[list[Request]]:
    return st.lists(requests(*kinds), min_size=1, max_size=4, unique_by=by)


def process_of(asked: Request) -> Key:
    return asked.namespace, asked.process_id


def key_of(asked: Request) -> tuple[str, str, str]:
    return asked.namespace, asked.process_id, asked.idempotency_key
