"""Plans of pages: what a page reads beside the statements of `tests/storage/test_plans.py`.

Rule: pages are asked as browsers ask, over many processes; each statement that a page then sends by the
pool of reads is planned again, for its values and for any, and reads about as much as the page shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import psycopg
import pytest
from sqlalchemy.event import listen

from progressor import Client
from progressor.web import EVERYTHING, Principal, Rights, console
from progressor.web.app import make_console
from progressor.web.page import ConsolePage
from progressor.web.pages.process import PATH
from tests.conftest import Databases
from tests.open_access import OpenAccess
from tests.storage.test_plans import break_some, fill, fill_one, scans
from tests.storage.test_searches import read
from tests.support import NS, Tables
from tests.web.reading import Browser, Page

# Of these some find a page at once, some nothing.
FILTERS = {
    "namespace": ("", NS),
    "status": ("", "init"),
    "metadata": ("", "plan=free", "plan=pro"),
    "timer": ("", "none", "overdue", "held", "dunning"),
}
SEARCHES = [
    f"processes?{urlencode({name: value for name, value in zip(FILTERS, values, strict=True) if value})}"
    for values in product(*FILTERS.values())
]
SEARCHES += [f"{path}&since=1h" for path in SEARCHES[1::7]]
ONE, MANY = f"processes/{NS}/one", f"processes/{NS}/many-10"
PROCESSES = [f"{path}{view}" for path in (ONE, MANY) for view in ("", "?view=history", "/value")]
BULK = f"bulk/new?namespace={NS}"
OTHERS = [
    *(
        "",
        "find?q=x",
        "processes?status=error",
        f"processes/new?namespace={NS}",
        *PROCESSES,
        "workers",
        "schedules",
        f"schedules/{NS}/daily",
        "feed",
        "bulk",
        "bulk/1",
    ),
    *(
        "broken",
        f"broken?namespace={NS}",
        "broken?since=1h",
        f"broken/group?namespace={NS}&status=broken&handler=init&message=no",
        BULK,
        f"{BULK}&handler=init&detail_like=%25no%25",
    ),
    *(
        "namespaces",
        f"namespaces/{NS}",
        f"namespaces/{NS}/retention",
        "load",
        f"load?namespace={NS}&since=1h",
        "audit",
        f"audit?namespace={NS}&process_id=one",
        "system",
        "system/doctor",
        "settings",
    ),
]
# All events of a process: no index has them by the tasks that made them.
OF_TASKS = "events.task_id BETWEEN"
# Rows of a page, with those that it looks at beside each; those that are found by their metadata.
MOST, RARE = 1500, 5100


class Sent(NamedTuple):
    """A statement of the pool of reads; `by_bitmap` if it is planned for the index on metadata alone."""

    sql: str
    values: dict[str, Any]
    by_bitmap: bool


class Recorded(dict[str, Sent]):
    """The statements that were sent, one of each text."""

    def __init__(self) -> None:
        super().__init__()
        self._before = ""

    def note(self, _connection: Any, _cursor: Any, sql: str, values: Any, *_: Any) -> None:
        """Keep what SQLAlchemy is about to send."""
        if not sql.startswith(("BEGIN", "SELECT set_config")):
            self.setdefault(sql, Sent(sql, values, self._before.startswith("SELECT set_config")))
        self._before = sql


def prepare(tables: Tables, filled: Callable[[Tables], None], *, analyzed: bool) -> None:
    """Many processes, of which one in ten is broken; all but a few share their metadata."""
    for table in ("processes", "tasks", "schedule", "events"):
        # It may come by itself.
        tables.connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
    filled(tables)
    tables.execute('UPDATE processes SET metadata = \'{"plan": "free"}\' WHERE process_no %% 4 <> 0')
    tables.execute('UPDATE processes SET metadata = \'{"plan": "pro"}\' WHERE process_no %% 1000 = 4')
    break_some(tables, 1)
    tables.execute("UPDATE feed_head SET position = (SELECT max(position) FROM feed)")
    if analyzed:
        tables.execute("ANALYZE")


async def ask(client: Client) -> Recorded:
    """Ask for all pages, and for those behind the first ones; return what was read."""
    recorded = Recorded()
    reads = await client._node.reads()
    listen(reads._connections._engine.sync_engine, "before_cursor_execute", recorded.note)
    caller = Principal("x", Rights(EVERYTHING.scopes, (NS, "other.*")))
    made = await client.repair_all(NS, simple=True, handler="nothing")
    assert made.bulk_id == 1
    for app, paths in (
        (make_console(client, access=OpenAccess()), SEARCHES + OTHERS),
        (console(client, authorize=lambda _: caller), SEARCHES[::5]),
    ):
        async with Browser(app) as browser:
            for path in paths:
                page = await browser.get(path)
                assert page.status in (200, 404), (path, page.said)
                for url in behind(page):
                    assert (await browser.get(url)).status == 200, url
    return recorded


def behind(page: Page) -> Iterator[str]:
    """The address of the next page, if there is one."""
    yield from (url for url in page.links if "cursor=" in url or "before=" in url)


def planned(connection: psycopg.Connection[Any], sent: Sent, mode: str) -> dict[str, Any]:
    """The plan of a prepared statement, and what it read: for these values, or for any."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    sql = re.sub(r"%\((\w+)\)s", number, sent.sql).replace("%%", "%")
    with psycopg.ClientCursor(connection) as cursor, connection.transaction(force_rollback=True):
        cursor.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        if sent.by_bitmap:
            for setting in ("enable_seqscan", "enable_indexscan", "enable_indexonlyscan"):
                cursor.execute(f"SET LOCAL {setting} = off".encode())
        cursor.execute(b"PREPARE asked AS " + sql.encode())
        values = f"({', '.join(['%s'] * len(names))})" if names else ""
        cursor.execute(
            f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE asked {values}".encode(),
            [sent.values[name] for name in names],
        )
        ((plan,),) = cursor.fetchall()
        cursor.execute("DEALLOCATE asked")
    found: dict[str, Any] = plan[0]["Plan"]
    return found


@pytest.mark.parametrize(
    ("filled", "analyzed"),
    [(fill, False), (fill, True), (fill_one, True)],
    ids=["new", "analyzed", "one"],
)
async def test_pages_read_by_indexes_what_they_show(
    databases: Databases, template: str, filled: Callable[[Tables], None], analyzed: bool
) -> None:
    """No table of processes is read from end to end, and of each no more than a page is to look at."""
    name = databases.make(template)
    dsn = databases.dsn(name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        prepare(Tables(connection), filled, analyzed=analyzed)
        async with Client(dsn) as client:
            recorded = await ask(client)
        for sent in recorded.values():
            if filled is fill_one and OF_TASKS in sent.sql:
                continue
            for mode in ("force_custom_plan", "force_generic_plan"):
                plan = planned(connection, sent, mode)
                whole = {scan["Relation Name"] for scan in scans(plan) if scan["Node Type"] == "Seq Scan"}
                # Of one process, that is its only row.
                assert whole <= ({"running"} if filled is fill else {"running", "processes"}), sent.sql
                most = RARE if sent.by_bitmap else MOST
                assert sum(read(plan)) <= most, (mode, sent.sql, plan)
    databases.drop(name)


def test_each_page_is_asked() -> None:
    """A page that is added is looked at here too."""
    app = make_console(Client("postgresql:///nothing"), access=OpenAccess())
    pages = [route for route in app.routes if isinstance(route, ConsolePage) and not route.is_form]
    asked = [f"/{urlsplit(path).path}" for path in [*SEARCHES, *OTHERS]]
    left = [page.path for page in pages if not any(page.path_regex.match(path) for path in asked)]
    # What a stream reads is in the tour of watches, and a sign-in reads a token.
    assert sorted(left) == [f"{PATH}/hints", "/sign-in"]
