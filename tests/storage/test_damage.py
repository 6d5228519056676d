"""A row that PostgreSQL cannot read costs its own process, and no other one's claim."""

from __future__ import annotations

import os
from typing import Any

import pytest

from progressor import metrics
from progressor.errors import StorageUnavailable
from progressor.loggers import message_of
from progressor.storage.operations import Storage
from progressor.storage.postgres.sqlstates import BatchRefused
from tests.support import (
    NS,
    SECOND,
    T0,
    WORKER,
    LossyConnections,
    Tables,
    claim_calls,
    claim_timers,
    collect,
    init,
    number,
    request,
    set_timer,
    start,
    wait,
)

# Too large for a row, and of a size that claims read at once; and one that they read afterwards.
SMALL, LARGE = os.urandom(5_000), os.urandom(100_000)
METADATA = {"seal": os.urandom(20_000).hex()}


def names(claimed: Any) -> list[str]:
    return [each.task.process_id for each in claimed]


def unread() -> float:
    return metrics.UNREAD._value.get()


@pytest.mark.parametrize("args", [SMALL, LARGE], ids=["small", "large"])
async def test_arguments(
    storage: Storage, tables: Tables, caplog: pytest.LogCaptureFixture, args: bytes
) -> None:
    """The others of the claim are run. It stays in running, said and counted, and a collector breaks it."""
    for name in ("p1", "bad", "p2"):
        await start(storage, name)
    await wait(storage, request("p1", worker_id=None))
    with tables.damaged("tasks"):
        ref = await wait(storage, request("bad", worker_id=None, args=args))
    await wait(storage, request("p2", worker_id=None, args=LARGE))
    before = unread()
    assert names(await claim_calls(storage)) == ["p1", "p2"]
    (said,) = [each for each in caplog.records if message_of(each) == "claimed task cannot be read"]
    assert vars(said)["task_id"] == ref.task_id
    assert unread() == before + 1
    # From here on it is in nobody's way.
    await wait(storage, request("p2", worker_id=None))
    assert await claim_calls(storage) == []
    assert tables.running("bad") is not None
    tables.set_collector()
    zombies = await collect(storage, T0 + 100 * SECOND)
    assert "bad" in {each.process_id for each in zombies}
    row = tables.process("bad")
    assert row is not None
    assert row["status"] == "error"


@pytest.mark.parametrize(
    "of_process",
    [{"aux_state": SMALL}, {"aux_state": LARGE}, {"metadata": METADATA}],
    ids=["state", "large state", "metadata"],
)
async def test_a_process(storage: Storage, tables: Tables, of_process: dict[str, Any]) -> None:
    """Its timer is not run, and those of others are. Whoever calls it is told at once."""
    await start(storage, "p1", set_timer(SECOND))
    with tables.damaged("processes"):
        await start(storage, "bad", set_timer(SECOND, **of_process))
    await start(storage, "p2", set_timer(SECOND))
    for worker_id in (None, WORKER):
        asked = [request("bad", worker_id=worker_id)]
        with pytest.raises(BatchRefused, match="chunk"):
            await storage.prepare_call(asked, now=T0)
        with pytest.raises(StorageUnavailable, match=r"^PostgreSQL cannot read what is stored: .*chunk"):
            await storage.prepare_call(asked, tried=True, now=T0)
    assert names(await claim_timers(storage, now=T0 + SECOND)) == ["p1", "p2"]
    assert await claim_timers(storage, now=T0 + SECOND) == []
    assert tables.running("bad") is not None
    tables.set_collector()
    await collect(storage, T0 + 100 * SECOND)
    assert tables.running("bad") is None


async def test_the_one_that_is_asked_for(storage: Storage, tables: Tables) -> None:
    """A claim of one task by its id brings nothing, and ends."""
    await start(storage, "bad")
    with tables.damaged("tasks"):
        ref = await wait(storage, request("bad", worker_id=None, args=SMALL))
    assert await storage.capture_task(ref, worker_id=WORKER, lease=1, now=T0) is None
    assert tables.running("bad") is not None


REFUSED = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'invalid page' USING ERRCODE = 'XX001';
END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON tasks FOR EACH ROW
WHEN (OLD.name = 'refused') EXECUTE FUNCTION refuse();
"""


async def test_what_cannot_even_be_claimed(
    storage: Storage, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """It is passed over by each claim, however few are wanted, and said once, until it can be."""
    for name in ("bad1", "bad2", "p1", "p2"):
        await start(storage, name)
    tables.execute(REFUSED)
    for name in ("bad1", "bad2"):
        await wait(storage, request(name, worker_id=None, name="refused"))
    for name in ("p1", "p2"):
        await wait(storage, request(name, worker_id=None))
    assert names(await claim_calls(storage, 1)) == ["p1"]
    assert names(await claim_calls(storage, 1)) == ["p2"]
    assert names(await claim_calls(storage, 1)) == []
    said = [each for each in caplog.records if message_of(each) == "waiting task cannot be claimed"]
    assert len(said) == 2
    tables.execute("DROP TRIGGER refuse ON tasks")
    assert names(await claim_calls(storage)) == ["bad1", "bad2"]


async def test_answers_that_are_lost_meanwhile(storage: Storage, tables: Tables, dsn: str) -> None:
    """Whichever it is, no task is claimed twice, none is lost, and there are no more than wanted."""
    spared = 2
    while spared < 20:
        with tables.damaged("tasks"):
            await wait(storage, init(f"bad{spared}", worker_id=None, args=SMALL))
        wanted = [f"p{spared}-{n}" for n in range(3)]
        for name in wanted:
            await wait(storage, init(name, worker_id=None))
        lossy = LossyConnections(dsn, limit=1)
        lossy.spared, lossy.late = spared, 1
        found = await Storage(lossy, patience=SECOND).search(
            "calls", NS, 3, worker_id=WORKER, lease=(lease := number()), now=T0
        )
        assert [each.task.process_id for each in found] == wanted[:2]
        (held,) = tables.execute("SELECT count(*) AS tasks FROM running WHERE lease = %s", lease)
        assert held["tasks"] == 3
        assert names(await claim_calls(storage)) == wanted[2:]
        await lossy.close()
        if lossy.late:
            # It needed no more transactions.
            break
        spared += 1
    assert 5 < spared < 20
