"""Of the requests that wait, the more urgent ones are begun first."""

import asyncio

import pytest

from progressor import InvalidRequest
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.acceptance.support import NS, Act, Scripted

HIGHEST, LOWEST = 10, -10


async def test_the_urgent_go_first(engine: MakeEngine, client: MakeClient) -> None:
    """Where one slot serves all, in the order of their priorities, whoever asked first."""
    scripted = Scripted(concurrency=1)
    await engine(scripted.namespace)
    asking = await client()
    for process_id in ("p", "low", "plain", "high"):
        await asking.start(NS, process_id, Act())
    running = asyncio.create_task(asking.call(NS, "p", "act", Act(gate="g")))
    await scripted.gates["g"].entered()
    receipts = [
        await asking.submit_call(NS, "low", "act", Act(), priority=LOWEST),
        await asking.submit_call(NS, "plain", "act", Act()),
        await asking.submit_call(NS, "high", "act", Act(), priority=HIGHEST),
    ]
    scripted.gates["g"].open()
    await running
    for receipt in receipts:
        await asking.answer(receipt)
    ran = [process_id for process_id, kind in scripted.ran if kind == "call"]
    assert ran == ["p", "high", "plain", "low"]


@pytest.mark.parametrize("priority", [11, -11, 1.5, "1", True, None])
async def test_no_request_has_such_a_priority(serve: MakeClient, priority: int) -> None:
    """It is refused by its name, before anything is written."""
    client = await serve(Scripted().namespace)
    for asked in (
        client.call(NS, "p", "act", priority=priority),
        client.notify(NS, "p", "act", priority=priority),
        client.start(NS, "p", priority=priority),
    ):
        with pytest.raises(InvalidRequest, match="priority must be ") as wrong:
            await asked
        assert wrong.value.field == "priority"
