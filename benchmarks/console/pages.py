"""The pages of the console that are measured, and who asks for them."""

from __future__ import annotations

import re
from html import unescape
from typing import NamedTuple
from urllib.parse import quote, urlencode

import httpx

from benchmarks.console.filling import DEEP, GROUPED, LARGEST, LONG, SMALL
from progressor import Client
from progressor.web import EVERYTHING, Principal, Rights, console

_BASE = "http://localhost/"
_FOLLOWING = re.compile(r'<a href="([^"]+)">(?:Next page|Older)</a>')


class Page(NamedTuple):
    """A page to ask for; `further`: so many pages behind the first."""

    name: str
    path: str
    further: int = 0
    needs_all: bool = False


def _found(name: str, further: int = 0, **wanted: str) -> Page:
    return Page(f"Processes: {name}", f"processes?{urlencode(wanted)}", further)


def _process(process_id: str) -> str:
    return f"processes/{LARGEST}/{process_id}"


_BROKEN = "o-20"
_BULK = f"bulk/new?{urlencode({'namespace': LARGEST})}"

PAGES = [
    Page("Overview", ""),
    _found("all"),
    _found("all, page 4", 3),
    _found("largest namespace, page 4", 3, namespace=LARGEST),
    _found("small namespace", namespace=SMALL),
    _found("broken", status="error"),
    _found("broken, page 4", 3, status="error"),
    _found("in init", status="init"),
    _found("in init, largest namespace", status="init", namespace=LARGEST),
    _found("metadata of 100,000", metadata="plan=pro"),
    _found("metadata of 100,000, page 4", 3, metadata="plan=pro"),
    _found("metadata of 100,000, largest namespace", metadata="plan=pro", namespace=LARGEST),
    _found("metadata of 100,000, small namespace", metadata="plan=pro", namespace=SMALL),
    _found("metadata of 100,000, none broken", metadata="plan=pro", status="error"),
    _found("metadata of 100,000, none in init", metadata="plan=pro", status="init"),
    _found("metadata of 100,000, overdue", metadata="plan=pro", timer="overdue"),
    _found("metadata of 100,000, held", metadata="plan=pro", timer="held"),
    _found("metadata of 100,000, without timer", metadata="plan=pro", timer="none"),
    _found("metadata of 100,000, within 1 h", metadata="plan=pro", since="1h"),
    _found("metadata of 1,000", metadata="plan=gold"),
    _found("metadata of one", metadata="customer=c1"),
    _found("metadata of none", metadata="plan=none"),
    _found("metadata of none, small namespace", metadata="plan=none", namespace=SMALL),
    _found("timer overdue", timer="overdue"),
    _found("timer overdue, page 4", 3, timer="overdue"),
    _found("timer held", timer="held"),
    _found("without timer", timer="none"),
    _found("without timer, in init", timer="none", status="init"),
    _found("within 1 h", since="1h"),
    _found("within 1 h, in init", since="1h", status="init"),
    Page("Process", _process("o-1")),
    Page("Process: broken", _process(_BROKEN)),
    Page("Process: deep mailbox", _process(DEEP)),
    Page("Process: long, timeline", _process(LONG)),
    Page("Process: long, timeline, page 4", _process(LONG), 3),
    Page("Process: long, history", f"{_process(LONG)}?view=history"),
    Page("Process: long, history, page 4", f"{_process(LONG)}?view=history", 3),
    Page("Broken", "broken"),
    Page("Broken: largest namespace", f"broken?{urlencode({'namespace': LARGEST})}"),
    Page("Broken: within 1 h", "broken?since=1h"),
    Page("New bulk", _BULK),
    Page("New bulk: a message", f"{_BULK}&detail_like={quote('HTTPError%timeout%')}"),
    Page("New bulk: a handler", f"{_BULK}&handler=pay"),
    Page("New bulk: a message of none", f"{_BULK}&detail_like=nothing"),
    Page("Namespaces", "namespaces"),
    Page("Namespace: largest", f"namespaces/{LARGEST}"),
    Page("Namespace: with groups", f"namespaces/{GROUPED}"),
    Page("Workers", "workers"),
    Page("Schedules", "schedules"),
    Page("Feed", "feed", needs_all=True),
    Page("Feed, page 4", "feed", 3, needs_all=True),
    Page("Bulk repairs", "bulk"),
    Page("Bulk: running", "bulk/1000"),
    Page("Audit", "audit"),
    Page("Audit, page 4", "audit", 3),
    Page("Audit: rare verb", "audit?verb=pause"),
    Page("Audit: verb of none", "audit?verb=retire"),
    Page("Audit: small namespace", f"audit?namespace={SMALL}"),
    Page("Audit: a process", f"audit?namespace={LARGEST}&process_id=o-1"),
    Page("Audit: an id, any namespace", "audit?process_id=o-1"),
    Page("System", "system", needs_all=True),
]

COMBINED = {
    "namespace": ("", LARGEST, SMALL),
    "status": ("", "running", "error", "init"),
    "metadata": ("", "plan=pro", "region=1", "plan=gold", "customer=c1", "plan=none"),
    "timer": ("", "none", "overdue", "held"),
    "since": ("", "1h", "30d"),
}
"""The filters of Processes, and the values that are combined."""


def seen_parts() -> tuple[str, ...]:
    """Return the patterns of a caller who sees half of the namespaces, the largest among them."""
    return ("shop.*", "mail.*", "team.1*")


def console_of(client: Client, patterns: tuple[str, ...]) -> httpx.AsyncClient:
    """Return a caller of a console, who sees the namespaces that these patterns fit."""
    caller = Principal("bench", Rights(EVERYTHING.scopes, patterns))
    app = console(client, authorize=lambda _: caller)
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url=_BASE, timeout=600, follow_redirects=True
    )


def following_of(text: str, path: str) -> str | None:
    """Return the path of the page behind this one, None if it is the last."""
    found = _FOLLOWING.search(text)
    return (
        None if found is None else str(httpx.URL(_BASE + path).join(unescape(found[1]))).removeprefix(_BASE)
    )


async def last_of(http: httpx.AsyncClient, page: Page) -> str:
    """Return the path of the page so many pages behind the first, or of the last that there is."""
    path = page.path
    for _ in range(page.further):
        following = following_of((await http.get(path)).text, path)
        if following is None:
            break
        path = following
    return path
