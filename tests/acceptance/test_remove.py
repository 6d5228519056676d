"""Removing a process, by its handler or by a client, while others wait for it."""

import asyncio

import pytest

from progressor import ProcessNotFound, RequestLost
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.acceptance.support import NS, Act, Scripted, until_waiting
from tests.support import Tables


async def test_remove_in_a_call_still_answers_its_caller(serve: MakeClient) -> None:
    """The call that removes its process is answered; under its key the answer can be had later, too."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(add=1))
    act = Act(add=1, remove=True)
    assert await client.call(NS, "p", "act", act, idempotency_key="k") == 2
    with pytest.raises(ProcessNotFound):
        await client.get(NS, "p")
    assert await client.call(NS, "p", "act", act, idempotency_key="k") == 2


async def test_remove_in_a_call_answers_a_client_elsewhere(engine: MakeEngine, client: MakeClient) -> None:
    """The answer of a removing call is read by whichever client asked, and by any other with its key."""
    scripted = Scripted()
    await engine(scripted.namespace)
    first, second = await client(), await client()
    await first.start(NS, "p", Act(add=1))
    act = Act(add=1, remove=True, gate="g")
    asked = [
        asyncio.create_task(first.call(NS, "p", "act", act, idempotency_key="k")),
        asyncio.create_task(second.call(NS, "p", "act", act, idempotency_key="k")),
    ]
    await scripted.gates["g"].entered()
    scripted.gates["g"].open()
    assert await asyncio.gather(*asked) == [2, 2]
    assert await second.call(NS, "p", "act", act, idempotency_key="k") == 2


async def test_remove_in_init(serve: MakeClient) -> None:
    """An init that removes its process answers its caller and leaves nothing."""
    client = await serve(Scripted().namespace)
    assert await client.start(NS, "p", Act(add=3, remove=True)) == 3
    with pytest.raises(ProcessNotFound):
        await client.get(NS, "p")


async def test_callers_who_wait_get_process_not_found(serve: MakeClient) -> None:
    """When a handler removes its process, those who wait in the mailbox are told at once."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    removing = asyncio.create_task(client.call(NS, "p", "act", Act(add=1, gate="g", remove=True)))
    await scripted.gates["g"].entered()
    waiting = [asyncio.create_task(client.call(NS, "p", "act", Act())) for _ in range(3)]
    await until_waiting(client, "p", 3)
    scripted.gates["g"].open()
    assert await removing == 1
    for each in waiting:
        with pytest.raises(ProcessNotFound):
            await each


async def test_a_client_removes_a_process_that_is_at_work(serve: MakeClient) -> None:
    """`remove` does not wait: whoever waits is told, and the step under way saves nothing."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    calling = asyncio.create_task(client.call(NS, "p", "act", Act(emit="late", gate="g")))
    await scripted.gates["g"].entered()
    waiting = asyncio.create_task(client.call(NS, "p", "act", Act()))
    await until_waiting(client, "p", 1)
    await client.remove(NS, "p")
    for each in (calling, waiting):
        with pytest.raises(ProcessNotFound):
            await each
    assert await client.start(NS, "p", Act(add=7)) == 7
    scripted.gates["g"].open()
    assert await client.call(NS, "p", "act", Act(add=1)) == 8
    assert (await client.get(NS, "p")).last_event_id == 0


async def test_a_removed_process_is_not_taken_for_a_lost_one(serve: MakeClient, tables: Tables) -> None:
    """For a day it is known that somebody removed it, or that it removed itself; then it may be lost."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    for process_id in ("forgotten", "ended"):
        await client.start(NS, process_id, Act())
    ending = asyncio.create_task(client.call(NS, "ended", "act", Act(gate="g", remove=True)))
    await scripted.gates["g"].entered()
    receipts = [await client.submit_call(NS, name, "act", Act()) for name in ("forgotten", "ended")]
    scripted.gates["g"].open()
    await ending
    await client.remove(NS, "forgotten")
    for receipt in receipts:
        with pytest.raises(ProcessNotFound):
            await client.result(*receipt[:3], fingerprint=receipt.fingerprint)
    tables.execute("UPDATE progressor.audit SET acted_at = acted_at - interval '1 day'")
    tables.execute("DELETE FROM progressor.tasks")
    tables.execute("DELETE FROM progressor.removed_processes")
    for receipt in receipts:
        with pytest.raises(RequestLost, match="or its process was removed over a day ago") as caught:
            await client.result(*receipt[:3], fingerprint=receipt.fingerprint)
        assert not caught.value.is_certain
