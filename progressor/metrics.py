"""Every metric; the only module that knows prometheus_client.

Rule: durations are in milliseconds, and `prg_namespace` labels all that belongs to a namespace. The eight
histograms named in the reference keep their names, labels and bucket bounds; others were added below and
above.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import cache
from typing import NamedTuple, TypeVar

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, Metric
from prometheus_client.exposition import choose_encoder

from progressor.model import Disposition

_FINE = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20)
# Milliseconds; long enough to tell a provider that takes two seconds from one that takes a minute.
_LONG = (2500, 5000, 10_000, 30_000, 60_000)
_BUCKETS = (*_FINE, 50, 150, 300, 500, 750, 1000, *_LONG)
_NOTIFICATION_BUCKETS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 50, 150, 300, 500, 1000, *_LONG)
_NAMESPACE = "prg_namespace"


M = TypeVar("M", Counter, Histogram)


def _duration(what: str, text: str, *labels: str) -> Histogram:
    return Histogram(f"progressor_{what}_duration_ms", text, (_NAMESPACE, *labels), buckets=_BUCKETS)


CALLS_SCANNING = _duration("calls_scanning", "Claiming waiting calls")
TIMERS_SCANNING = _duration("timers_scanning", "Claiming due timers")
ZOMBIE_COLLECTION = _duration("zombie_collection", "One round of the zombie collector")
PROCESS_REMOVING = _duration("process_removing", "Removing a process with all its rows")
REQUEST_PREPARING = _duration("request_preparing", "Persisting a request", "task_type")
TASK_PROCESSING = _duration("task_processing", "Running a handler", "task_type")
TASK_COMPLETION = _duration("task_completion", "Saving the result of a step", "completion_type")
NOTIFICATION = Histogram(
    "progressor_notification_duration_ms",
    "Sending a hint, or handing a batch of the feed to a sink or a projection",
    (_NAMESPACE, "notification_type"),
    buckets=_NOTIFICATION_BUCKETS,
)
HTTP_REQUEST = Histogram(
    "progressor_http_request_ms",
    "Answering a request of the HTTP API",
    ("method", "route", "status"),
    buckets=_BUCKETS,
)


@cache
def child(metric: M, *labels: str) -> M:
    """Return a labelled metric; cached, for on the hot path the look-up costs more than the observation."""
    return metric.labels(*labels)


def took(histogram: Histogram, began: float, *labels: str) -> None:
    """Observe the time from `began`, a value of `time.monotonic`, until now."""
    child(histogram, *labels).observe((time.monotonic() - began) * 1000)


DELIVERIES = Counter(
    "progressor_deliveries",
    "Events that a subscription delivered or parked, and attempts that failed, of projections and sinks",
    ("subscription", "outcome"),
)

SUBSCRIPTION_AGE = Gauge(
    "progressor_subscription_age_ms",
    "Age of the oldest transaction of the feed that a subscription has not done",
    ("subscription",),
)
SUBSCRIPTION_PARKED = Gauge(
    "progressor_subscription_parked", "Entries that a subscription has put aside", ("subscription",)
)
SUBSCRIPTION_FAILING = Gauge(
    "progressor_subscription_failing",
    "1 while a subscription tries something in vain, or the feed has not what comes next",
    ("subscription",),
)

BACKLOG = Gauge(
    "progressor_backlog", "Tasks that are due and wait for a worker (bounded count)", (_NAMESPACE, "kind")
)
OLDEST_AGE = Gauge(
    "progressor_backlog_oldest_age_ms",
    "Time that the oldest task of the backlog has waited",
    (_NAMESPACE, "kind"),
)
WAITING_REQUESTS = Gauge(
    "progressor_waiting_requests",
    "Waiting requests, also those behind others of their process (bounded count)",
    (_NAMESPACE,),
)
WAITING_AGE = Gauge(
    "progressor_waiting_oldest_age_ms", "Time that the oldest waiting request has waited", (_NAMESPACE,)
)
DEEPEST_MAILBOX = Gauge(
    "progressor_deepest_mailbox",
    "Waiting requests of the process that has most of them (bounded count)",
    (_NAMESPACE,),
)
WAITING_THROUGH = Gauge(
    "progressor_waiting_through_ms",
    "Time until all waiting requests have run, at the present pace; NaN if it is unknown",
    (_NAMESPACE,),
)
BROKEN_PROCESSES = Gauge(
    "progressor_broken_processes", "Processes in status error (bounded count)", (_NAMESPACE,)
)
LIVE_WORKERS = Gauge(
    "progressor_live_workers", "Workers that serve a namespace and have a fresh heartbeat", (_NAMESPACE,)
)
PAUSED = Gauge(
    "progressor_namespace_paused",
    "1 while an operator has paused the namespace: its requests and timers wait",
    (_NAMESPACE,),
)
OLDEST_SNAPSHOT = Gauge(
    "progressor_oldest_snapshot_age_ms",
    "Age of the oldest open transaction of the database, which keeps dead rows from being removed",
)
SLOTS = Gauge("progressor_slots", "Worker slots", (_NAMESPACE, "state"))
CONNECTION_SLOTS = Gauge(
    "progressor_connection_slots", "Slots of a worker for steps with SQL of their own", ("state",)
)
CONNECTION_WAITS = Gauge("progressor_connection_waits", "Steps that wait for such a slot")
ZOMBIES = Counter("progressor_zombies", "Zombies collected", (_NAMESPACE, "disposition"))
ZOMBIES_REFUSED = Counter(
    "progressor_zombies_refused", "Zombies that PostgreSQL refused to change; they are tried again"
)
JUDGING = Gauge(
    "progressor_zombie_collector_judging",
    "1 while the zombie collector of this process ends zombies; 0 until writes have succeeded for a lease",
)
LOST_LEASES = Counter("progressor_lost_leases", "Results dropped by the fence", (_NAMESPACE,))
REMOVED_STEPS = Counter(
    "progressor_removed_steps", "Results dropped because their process was removed meanwhile", (_NAMESPACE,)
)
RETRIES = Counter("progressor_retries", "Failed timers put back to be tried again", (_NAMESPACE,))
FUSED = Counter(
    "progressor_fused",
    "Requests and timers that were accepted or claimed, run and saved in one transaction",
    (_NAMESPACE, "task_type"),
)
FUSED_BARRED = Counter(
    "progressor_fused_barred",
    "Functions that are no longer fused: they held the event loop until their transaction was lost",
    (_NAMESPACE,),
)
RUN_AGAIN = Counter(
    "progressor_run_again",
    "Handlers that ran twice because the transaction in which they ran first was lost",
    (_NAMESPACE,),
)
REJECTED = Counter("progressor_rejected", "Requests that a handler rejected", (_NAMESPACE,))
BROKEN = Counter("progressor_broken", "Processes that broke", (_NAMESPACE,))
BULK_OUTCOMES = ("passed_by", "begun", "repaired", "refused", "failed", "removed", "redone")
BULK_REPAIRS = Counter(
    "progressor_bulk_repairs",
    "Processes that bulks passed by, repairs that they began, the outcomes of these, and redos",
    (_NAMESPACE, "outcome"),
)
SWEPT_KINDS = ("tasks", "events")
SWEPT = Counter(
    "progressor_retention_deleted", "Tasks and events that retention deleted", (_NAMESPACE, "kind")
)
BULKS_RUNNING = Gauge("progressor_bulks_running", "Bulks that have not ended", (_NAMESPACE,))
BULK_STILL = Gauge(
    "progressor_bulk_still_ms",
    "Time since a bulk made progress, while its rate allows it",
    (_NAMESPACE,),
)
MESSAGES = Counter(
    "progressor_messages",
    "Messages that were delivered to processes of a namespace, or refused there",
    (_NAMESPACE, "outcome"),
)
OUTBOX_WAITING = Gauge("progressor_outbox_waiting", "Messages in the outbox (bounded count)")
OUTBOX_AGE = Gauge("progressor_outbox_oldest_age_ms", "Age of the oldest message in the outbox")
BATCH_SIZE = Histogram(
    "progressor_batch_size",
    "Items that shared one transaction",
    ("verb",),
    buckets=(1, 2, 4, 8, 16, 32, 64, 128),
)
STORAGE_REPETITIONS = Counter(
    "progressor_storage_repetitions", "Operations and reads repeated after a lost connection or a deadlock"
)
UNREAD = Counter(
    "progressor_unread_tasks", "Tasks that could not be read or claimed because stored rows are damaged"
)
BACKGROUND_FAILURES = Counter(
    "progressor_background_failures", "Background tasks that failed and were begun again", ("part",)
)
LOG_LINES_DROPPED = Counter(
    "progressor_log_lines_dropped", "Log lines that were dropped because the stream was not read"
)
STORAGE_OUTAGE = Gauge(
    "progressor_storage_outage_ms",
    "Time since PostgreSQL became unavailable, or most of what is saved fails; 0 while it is available",
)
LOOP_LAG = Histogram(
    "progressor_loop_lag_ms",
    "Delay of due callbacks of the event loop; a handler that blocks the loop adds to it",
    buckets=(1, 5, 10, 50, 100, 500, 1000, 5000, 15_000, 60_000),
)
LOOP_LAG_MAX = Gauge("progressor_loop_lag_max_ms", "Longest lag of the event loop in the last minute")
LOOP_BLOCKS = Counter(
    "progressor_loop_blocks",
    "Times that a handler blocked the event loop for a second or longer",
    (_NAMESPACE,),
)


# NaN until the age is measured, and always if the role lacks the right: 0 would look healthy to an alert.
OLDEST_SNAPSHOT.set(math.nan)


def expect(namespace: str) -> None:
    """Show a namespace's counters from 0 on: Prometheus sees no increase in a series that begins at 1."""
    for counter in (
        LOST_LEASES,
        REMOVED_STEPS,
        RETRIES,
        FUSED_BARRED,
        RUN_AGAIN,
        LOOP_BLOCKS,
        REJECTED,
        BROKEN,
    ):
        counter.labels(namespace)
    for disposition in (Disposition.BREAK, Disposition.HOLD, Disposition.RETRY):
        ZOMBIES.labels(namespace, disposition.value)
    for outcome in BULK_OUTCOMES:
        BULK_REPAIRS.labels(namespace, outcome)
    for kind in SWEPT_KINDS:
        SWEPT.labels(namespace, kind)
    for outcome in ("delivered", "refused"):
        MESSAGES.labels(namespace, outcome)


def publish_backlog(namespace: str, kind: str, *, waiting: int, oldest_age_ms: float) -> None:
    """Show the tasks of one kind that could run and wait, as a scanner found them."""
    BACKLOG.labels(namespace, kind).set(waiting)
    OLDEST_AGE.labels(namespace, kind).set(oldest_age_ms)


def publish_waiting(
    namespace: str, *, requests: int, age: timedelta, deepest: int, through_in: timedelta | None
) -> None:
    """Show all requests that wait, as a scanner found them."""
    WAITING_REQUESTS.labels(namespace).set(requests)
    WAITING_AGE.labels(namespace).set(age.total_seconds() * 1000)
    DEEPEST_MAILBOX.labels(namespace).set(deepest)
    WAITING_THROUGH.labels(namespace).set(
        math.nan if through_in is None else through_in.total_seconds() * 1000
    )


_OF_SCANNERS = (
    *(LIVE_WORKERS, PAUSED),
    *(WAITING_REQUESTS, WAITING_AGE, DEEPEST_MAILBOX, WAITING_THROUGH),
)


def forget_backlog(namespace: str) -> None:
    """Drop the gauges of a namespace that nobody serves and that has nothing to do."""
    for gauge in _OF_SCANNERS:
        gauge.remove(namespace)
    for kind in ("calls", "timers"):
        BACKLOG.remove(namespace, kind)
        OLDEST_AGE.remove(namespace, kind)


def publish_bulks(namespace: str, *, running: int, still: timedelta) -> None:
    """Show the bulks of a namespace that have not ended, as a bulk runner found them."""
    BULKS_RUNNING.labels(namespace).set(running)
    BULK_STILL.labels(namespace).set(still.total_seconds() * 1000)


def forget_bulks(namespace: str) -> None:
    """Drop the gauges of a namespace whose bulks have all ended."""
    BULKS_RUNNING.remove(namespace)
    BULK_STILL.remove(namespace)


def publish_outbox(waiting: int, age: timedelta | None) -> None:
    """Show the messages that wait in the outbox, as a sweeper found them."""
    OUTBOX_WAITING.set(waiting)
    OUTBOX_AGE.set(0 if age is None else age.total_seconds() * 1000)


class Family(NamedTuple):
    """One metric with all its samples, as it travels between OS processes."""

    name: str
    text: str
    kind: str
    unit: str
    samples: list[Sample]


class Sample(NamedTuple):
    """One number of a metric."""

    name: str
    labels: dict[str, str]
    value: float


def families() -> list[Family]:
    """Gather all metrics of this OS process."""
    return [
        Family(
            each.name,
            each.documentation,
            each.type,
            each.unit,
            [Sample(sample.name, sample.labels, sample.value) for sample in each.samples],
        )
        for each in REGISTRY.collect()
    ]


def families_of(sees: Callable[[str], bool]) -> list[Family]:
    """Gather the samples of the namespaces that a caller sees, and those that belong to no namespace."""
    return [
        each._replace(
            samples=[
                sample
                for sample in each.samples
                if _NAMESPACE not in sample.labels or sees(sample.labels[_NAMESPACE])
            ]
        )
        for each in families()
    ]


def exposition(accept: str = "", shown: Iterable[Family] | None = None) -> tuple[bytes, str]:
    """Return metrics (None: all of this OS process) as text for an Accept header, and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(REGISTRY if shown is None else _Shown(shown)), content_type


class _Shown:
    """Metrics for an encoder, which takes them from a registry."""

    def __init__(self, shown: Iterable[Family]) -> None:
        self._shown = shown

    def collect(self) -> Iterable[Metric]:
        for name, text, kind, unit, samples in self._shown:
            metric = Metric(name, text, kind, unit)
            for sample in samples:
                metric.add_sample(*sample)
            yield metric
