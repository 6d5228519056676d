"""The results of timers: of tasks that nobody asked for."""

from datetime import timedelta

import pytest

from progressor import TaskCancelled
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.acceptance.support import NS, Act, Scripted

LATER = 3600.0


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (Act(after=2 * LATER), "timer replaced"),
        (Act(unset=True), "timer unset"),
        (None, "timer replaced"),
    ],
    ids=["replaced", "unset", "fired"],
)
async def test_a_timer_that_was_cancelled(
    engine: MakeEngine, client: MakeClient, act: Act | None, said: str
) -> None:
    """It was cancelled, and its process is not broken."""
    made = (await engine(Scripted().namespace)).client
    dispatcher = await client()
    await dispatcher.start(NS, "p", Act(after=LATER))
    timer = (await dispatcher.trace(NS, "p"))[-1].task_id
    if act is None:
        await made.fire_timer(NS, "p")
    else:
        await dispatcher.call(NS, "p", "act", act)
    with pytest.raises(TaskCancelled) as caught:
        await dispatcher.result(NS, "p", timer)
    assert (caught.value.task_id, caught.value.detail) == (timer, said)
    assert (await dispatcher.get(NS, "p")).status == "running"


async def test_a_timer_that_ran(engine: MakeEngine, client: MakeClient) -> None:
    """It has no answer; who waits for it waits until it ran."""
    await engine(Scripted().namespace)
    dispatcher = await client()
    await dispatcher.start(NS, "p", Act(after=0.05))
    timer = (await dispatcher.trace(NS, "p"))[1].task_id
    assert await dispatcher.result(NS, "p", timer, timeout=timedelta(seconds=30)) is None
