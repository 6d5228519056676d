"""Tables at every width: nothing that identifies a row, and no number, is cut."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console, RenderableType

from progressor.bench import report
from progressor.bench.cases import BenchCase
from progressor.bench.samples import Results
from progressor.bulks import BrokenGroup, Bulk, BulkPreview, BulkStatus
from progressor.cli import bulk, oversee, status, token, views
from progressor.cli.tables import Listing
from progressor.model import Event
from progressor.monitoring import KnownWorker, Mailbox, NamespaceStatus, Waiting, WaitingRequests
from progressor.rights import Rights, Token

NAMESPACE = "billing.subscription.of-a-long-name-that-somebody-gave"
PROCESS = "customer-0123456789-abcdef-0123456789-abcdef-0123456789-abcdef-of-germany"
NOW = datetime(2026, 2, 28, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
WIDTHS = [60, 80, 200]


def rendered(shown: RenderableType, width: int) -> str:
    """What stands in a terminal of this width, its lines joined: a long word may be folded."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(shown)
    text = console.file.getvalue()  # type: ignore[attr-defined] # a StringIO
    assert all(len(line) <= width for line in text.splitlines())
    return text


def unfolded(text: str) -> str:
    return "".join(text.split())


def namespace(**fields: Any) -> NamespaceStatus:
    mailbox = Mailbox(PROCESS, 59_600, False, 50 * timedelta(minutes=1), 2 * HOUR)
    known = NamespaceStatus(
        name=NAMESPACE, paused=True, workers=12, slots=300, free_slots=297, running=3,
        waiting=WaitingRequests(59_623, True, 51 * timedelta(minutes=1), (mailbox,)),
        through_in=3 * HOUR, calls=Waiting(0, timedelta()), timers=Waiting(1001, HOUR),
        broken=532, started=999, steps=123_456, next_timers=(NOW,),
    )  # fmt: skip
    return replace(known, **fields)


def made_bulk() -> Bulk:
    return Bulk(
        bulk_id=17, namespace=NAMESPACE, status=BulkStatus.RUNNING, created_at=NOW, ended_at=None,
        rate=50.0, simple=False, detail_like="%" + "long" * 20 + "%", handler="a_call_of_a_very_long_name",
        looked_at=10_000, passed_by=1, begun=9_998, repaired=9_000, refused=1, failed=2, removed=3,
        left=123_456, has_more=True, last_error="why " * 40,
    )  # fmt: skip


TABLES: dict[str, tuple[Callable[[], RenderableType], list[str]]] = {
    "status": (
        lambda: status._view([namespace(), namespace(name="b")]),
        [
            *(NAMESPACE, "59,623+ for 51 min", "3 h or more", "1,000+ for 60 min", "3 of 300", "123,456"),
            *("532", f"{NAMESPACE}/{PROCESS}", "59,600 for 50 min"),
        ],
    ),
    "workers": (
        lambda: oversee._workers_view(
            [
                KnownWorker(
                    "0123456789abcdef", "a-host.of.a.long.domain.example", (NAMESPACE, "b"),
                    {NAMESPACE: 297, "b": 3}, NOW, NOW, timedelta(), HOUR,
                )
            ]
        ),
        ["0123456789abcdef", "a-host.of.a.long.domain.example", f"{NAMESPACE} (297)", "b (3)"],
    ),
    "workers of many namespaces": (
        lambda: oversee._workers_view(
            [
                KnownWorker(
                    "0123456789abcdef", "host", tuple(f"n{number:04}" for number in range(2000)),
                    {}, NOW, NOW, timedelta(), HOUR,
                )
            ]
        ),
        ["n0000 (0), n0001 (0)", "n0009 (0), + 1,990 more"],
    ),
    "bulks": (lambda: bulk._list_view([made_bulk()]), ["17", NAMESPACE, "9,998", "9,000"]),
    "bulk": (lambda: bulk._view(made_bulk()), ["17", NAMESPACE, "9,998", "10,000", "123,456 or more"]),
    "preview": (
        lambda: bulk._groups_view(
            BulkPreview(
                500, 600, False,
                (BrokenGroup("a_call_of_a_very_long_name", "why " * 40, 500, NOW, NOW, (PROCESS, "b")),),
            )
        ),
        ["500", "a_call_of_a_very_long_name", f"{PROCESS}, b"],
    ),
    "tokens": (
        lambda: token._view(
            [
                Token(
                    "4f0c2a7b9d1e3856", "the web shop of the north",
                    Rights(frozenset({"processes:read", "state:read"}), (NAMESPACE,)), NOW,
                    None, None, NOW, None, b"",
                )
            ]
        ),
        ["4f0c2a7b9d1e3856", "the web shop of the north", "processes:read", "state:read", NAMESPACE],
    ),
    "history": (
        lambda: views.history_view(
            [Event({"n": 1}, {"name": "an_event_of_" + "x" * 70}, 1234, NOW, 987_654)]
        ),
        ["1234", "an_event_of_" + "x" * 70, "987654"],
    ),
}  # fmt: skip


def benched(width: int) -> str:
    """The figures of a run, in a terminal of this width."""
    case = BenchCase("steps", "steps of many processes at once", "steps")
    figures = {
        "rate": 12_345.0,
        "p50_ms": 1.25,
        "p99_ms": 23.5,
        "client_cpu_us": 61.0,
        "wal_bytes": 1_234.0,
    }
    results = Results(
        {"repeats": 3, "cores": 2, "server_version": "15", "python": "3.11", "fsync": "on"}
        | {"synchronous_commit": "on"},
        [case],
        {case.key: [figures | {"late_steps_s": 98.0}]},
    )
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    report.show(results, console)
    return str(console.file.getvalue())  # type: ignore[attr-defined] # a StringIO


@pytest.mark.parametrize("width", WIDTHS)
def test_figures_are_not_cut(width: int) -> None:
    """Of a benchmark, too."""
    text = unfolded(benched(width))
    for each in (
        "steps of many processes at once",
        "12,345/s",
        "1.25 ms",
        "23.50 ms",
        "61 µs",
        "1,234 B",
        "98.00 s",
    ):
        assert unfolded(each) in text


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", list(TABLES))
def test_nothing_is_cut(name: str, width: int) -> None:
    """Names, ids and numbers are whole in a terminal of 60, 80 and 200 columns."""
    view, wanted = TABLES[name]
    text = unfolded(rendered(view(), width))
    for each in wanted:
        assert unfolded(each) in text


def test_a_number_is_not_torn() -> None:
    """What is stacked is folded between its cells."""
    lines = rendered(status._view([namespace()]), 60).splitlines()
    for whole in ("WAITING 59,623+ for 51 min", "RUNNING 3 of 300", "STEPS/MIN 123,456", "BROKEN 532"):
        assert any(whole in line for line in lines), whole


def test_a_table_that_fits_is_a_table() -> None:
    """Each row on a line of its own, under its titles."""
    first, second, *_ = rendered(
        bulk._list_view([replace(made_bulk(), detail_like=None)]), 200
    ).splitlines()
    assert first.split()[:3] == ["bulk", "namespace", "status"]
    assert second.split()[:3] == ["17", NAMESPACE, "running"]


def test_a_quiet_namespace_has_no_mailboxes_to_look_at() -> None:
    """Nor is anything estimated."""
    quiet = WaitingRequests(1, False, timedelta(), (Mailbox("p", 1, False, timedelta(), None),))
    text = rendered(status._view([namespace(waiting=quiet, through_in=None)]), 80)
    assert "PROCESS" not in text
    assert "unknown" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_stored_texts_steer_no_terminal(width: int) -> None:
    """Cells that are plain texts show control characters: an error of a handler may hold any."""
    listing = Listing("NAME", "ERROR")
    listing.add("ledger", "no\x1b[2J money\nat all")
    text = rendered(listing, width)
    assert "no\\x1b[2J money\\nat all" in text, text
    assert "\x1b[2J" not in text
