"""Every contestant's child: it reads one case, measures it, and writes the figures."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from progressor.bench.children import read_line, write_line
from progressor.bench.measure import Figures, Meter
from progressor.deployment.loops import serving

Workload = Callable[..., Coroutine[Any, Any, Figures]]

# With its JSON around it, 64 bytes.
PAYLOAD = '{"pad":"' + "x" * 54 + '"}'

# A queue has no place for a state and a history: the application's own tables, the leanest there can be.
TABLES = """
CREATE TABLE states (
    process_id text COLLATE "C" PRIMARY KEY,
    n bigint NOT NULL
) WITH (fillfactor = 70);
CREATE TABLE events (
    process_id text COLLATE "C" NOT NULL,
    event_id bigint NOT NULL,
    timestamp timestamptz NOT NULL DEFAULT now(),
    payload text NOT NULL,
    PRIMARY KEY (process_id, event_id)
)
"""
START = "INSERT INTO states (process_id, n) VALUES ({0}, 0)"
STEP = """
WITH state AS (UPDATE states SET n = n + 1 WHERE process_id = {0} RETURNING n)
INSERT INTO events (process_id, event_id, payload) SELECT {0}, n, {1} FROM state
"""


class Steps:
    """How many steps have run, and whether more are wanted."""

    def __init__(self) -> None:
        self.count = 0
        self.going = True


async def chain(
    dsn: str,
    steps: Steps,
    begin: Callable[[], Awaitable[None]],
    *,
    seconds: float,
    warmup: float,
) -> Figures:
    """Begin the chains, and count their steps in a window."""
    await begin()
    await asyncio.sleep(warmup)
    async with Meter(dsn) as meter:
        before = steps.count
        await asyncio.sleep(seconds)
        counted = steps.count - before
    steps.going = False
    return meter.per(counted)


def connect_keywords(dsn: str) -> dict[str, Any]:
    """A DSN as asyncpg takes it."""
    parts = conninfo_to_dict(dsn)
    names = {"host": "host", "port": "port", "user": "user", "password": "password", "dbname": "database"}
    return {there: parts[here] for here, there in names.items() if here in parts}


def main(workloads: Mapping[str, Workload]) -> None:
    """One case, one answer."""
    logging.basicConfig(level=logging.ERROR)
    case = read_line()
    with serving() as runner:
        write_line(runner.run(workloads[case["workload"]](case["dsn"], **case["params"])))
        # Some peers need half a minute for an orderly end; their databases are dropped anyhow.
        os._exit(0)
