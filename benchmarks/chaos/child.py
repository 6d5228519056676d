"""One process under faults: `python -m benchmarks.chaos.child JSON`.

Rule: the clock is made wrong before anything of the engine is imported, and defects are built in before
anything of it runs.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def _main(spec: dict[str, Any]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if spec["skew"]:
        from benchmarks.chaos.clock import set_wrong  # noqa: PLC0415 - before all others

        set_wrong(spec["skew"])
    if spec["defect"]:
        from benchmarks.chaos.defects import build_in  # noqa: PLC0415 - not in a sound process

        build_in(spec["defect"])
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    # Ticks fail on purpose.
    logging.getLogger("progressor.handler").setLevel(logging.CRITICAL)
    asyncio.run(_serve(spec))


async def _serve(spec: dict[str, Any]) -> None:
    from benchmarks.chaos.ledger import (  # noqa: PLC0415
        CLIENT_OPTIONS,
        ENGINE_OPTIONS,
        STEADY_OPTIONS,
        namespaces,
        steady,
    )
    from benchmarks.chaos.limits import cooks, meters  # noqa: PLC0415
    from benchmarks.chaos.readers import read_for_ever  # noqa: PLC0415
    from benchmarks.chaos.tallies import tallies  # noqa: PLC0415
    from benchmarks.chaos.teller import Tellers  # noqa: PLC0415
    from benchmarks.chaos.walks import shorten  # noqa: PLC0415
    from progressor import App, Client, Engine  # noqa: PLC0415
    from progressor.deployment.standalone import Standalone, scanner_apart, zombie_collector_apart  # noqa: PLC0415

    # A collector walks, and a worker that has one inside.
    shorten()
    file = Path(spec["told"])

    async def told() -> None:
        # The parent may write it before there is anybody to hear.
        while not await asyncio.to_thread(file.exists):  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    dsn, role = spec["dsn"], spec["role"]
    archived: dict[str, Any] = {"archive": spec["archive"]}
    alone: dict[str, Any] = {**ENGINE_OPTIONS, "scanner": False, "zombie_collector": False}

    async def tell(client: Client) -> None:
        tellers = Tellers(client, Path(spec["journal"]), name=spec["name"], seed=spec["seed"])
        running = asyncio.create_task(tellers.run(skew=spec["skew"]))
        waiting = asyncio.create_task(told())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        tellers.stop()
        await running

    everything = App([*namespaces(), meters(), cooks()], projections=[tallies()])
    match role:
        case "worker":
            async with Engine(dsn, everything, **alone):
                await told()
        case "steady":
            async with Engine(dsn, [steady()], **STEADY_OPTIONS, **archived):
                await told()
        case "engine":
            async with Engine(dsn, everything, fuse="always", **alone) as engine:
                await tell(engine.client)
        case "client":
            async with Client(dsn, **CLIENT_OPTIONS) as client:
                await tell(client)
        case "reader":
            async with Client(dsn, **CLIENT_OPTIONS) as client:
                await read_for_ever(client, Path(spec["journal"]))
        case "scanner" | "collector":
            build = scanner_apart if role == "scanner" else zombie_collector_apart
            async with Standalone(dsn, build, **ENGINE_OPTIONS, **archived):
                await told()
        case _:
            raise ValueError(f"no such role: {role}")


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
