"""Messages: what a process has sent that is not delivered, and where what it got came from."""

from __future__ import annotations

import psycopg
import pytest

from progressor.handlers.schedules import schedule_of
from progressor.messages.message import message_key, sent_by
from progressor.schedules import SCHEDULES
from tests.acceptance.support import until
from tests.web.conftest import World
from tests.web.orders import HIDDEN, SEEN

PATH = f"processes/{SEEN}/order-1"
SENT = """
INSERT INTO progressor.outbox
    (process_no, task_id, n, created_at, due, attempts, task_type, namespace, process_id, name,
     idempotency_key, request_hash)
SELECT p.process_no, t.task_id, n, now(), now() + interval '1 hour', n - 1, %s, %s, 'order-2', %s,
    'k' || n, ''
FROM progressor.processes AS p
INNER JOIN progressor.namespaces AS s USING (namespace_no)
INNER JOIN progressor.tasks AS t ON t.process_no = p.process_no AND t.name = 'pay'
CROSS JOIN generate_series(%s::int, %s::int) AS n
WHERE p.process_id = 'order-1' AND s.name = %s
"""


def send(world: World, *, to: str, name: str | None, first: int = 1, last: int = 1) -> None:
    """Put messages of order-1 into the outbox, which nobody delivers for an hour."""
    with psycopg.connect(world.dsn) as connection:
        kind = "init" if name is None else "notify"
        connection.execute(SENT, [kind, to, name, first, last, SEEN])


async def test_what_is_not_delivered_is_shown(world: World) -> None:
    """With its target, a link to its task, and how often it was put off."""
    browser = await world.caller("processes:read")
    assert "not delivered" not in (await browser.get(PATH)).said
    send(world, to=SEEN, name="pay")
    send(world, to=SEEN, name=None, first=2, last=2)
    page = await browser.get(PATH)
    assert "Messages that are not delivered" in page.said
    assert f"{browser.root}processes/{SEEN}/order-2" in page.links
    assert "notify pay" in page.said
    assert "start" in page.of("td")


async def test_so_many_are_shown_and_no_more(world: World) -> None:
    """However many a process has sent."""
    send(world, to=SEEN, name="pay", last=50)
    page = await (await world.browser()).get(PATH)
    assert page.said.count("notify") == 20


async def test_a_hidden_target_leaves_no_trace(world: World) -> None:
    """It is said that there is a message."""
    send(world, to=HIDDEN, name="pay")
    page = await (await world.caller("all", namespaces=["a.*"])).get(PATH)
    assert "a namespace that you do not see" in page.said
    assert HIDDEN not in page.html


async def test_what_a_schedule_sent_leads_to_it(served: World) -> None:
    """The start of an order, by the key that it got."""
    await served.client.call(SCHEDULES, f"{SEEN}/nightly", "trigger")
    found = await until(
        lambda: served.client.search(namespace=SEEN, created_after=None),
        lambda page: [each for each in page.items if not each.process_id.startswith("order")],
    )
    (process_id,) = (each.process_id for each in found.items if not each.process_id.startswith("order"))
    browser = await served.caller("all")
    page = await browser.get(f"processes/{SEEN}/{process_id}")
    assert "a message of the schedule" in page.said
    assert f"{browser.root}schedules/{SEEN}/nightly" in page.links


async def test_a_key_of_a_hidden_schedule_leaves_no_trace(served: World) -> None:
    """Whoever gives such a key: it may be any text."""
    key = f"schedule/{HIDDEN}/nightly/2026-01-01T00:00:00+00:00"
    await served.client.call(SEEN, "order-1", "pay", {"amount": 1}, idempotency_key=key)
    page = await (await served.caller("all", namespaces=["a.*"])).get(PATH)
    assert HIDDEN not in page.html
    assert HIDDEN in (await (await served.caller("all")).get(PATH)).html


async def test_a_message_says_in_which_task_it_was_sent(world: World) -> None:
    """By the key that the engine gave it."""
    with psycopg.connect(world.dsn) as connection:
        connection.execute(
            "UPDATE progressor.tasks SET idempotency_key = %s WHERE name = 'echo' AND process_no = "
            "(SELECT p.process_no FROM progressor.processes AS p INNER JOIN progressor.namespaces AS n "
            "USING (namespace_no) WHERE p.process_id = 'order-1' AND n.name = %s)",
            [message_key(4711, 2, 99), SEEN],
        )
    assert "a message, sent in task 4711" in (await (await world.browser()).get(PATH)).said


@pytest.mark.parametrize(
    "key", [None, "", "k", "progressor:sent:", "progressor:sent:x.1:2", "progressor:redo:7"]
)
def test_other_keys_are_of_no_message(key: str | None) -> None:
    """Nor of a schedule."""
    assert sent_by(key) is None
    assert schedule_of(key) is None


def test_keys_are_read_as_they_are_written() -> None:
    """Of a message, and of a schedule."""
    assert sent_by(message_key(4711, 2, 99)) == 4711
    assert schedule_of("schedule/a.b/nightly/2026-01-01T00:00:00+00:00") == ("a.b", "nightly")
    for odd in ("schedule/a.b/nightly", "schedule//x/t", "schedule/a", "schedules/a/b/c"):
        assert schedule_of(odd) in (None, ("", "x"))
