"""One node: workers and the facade in an OS process, `python -m benchmarks.linearizability.node JSON`."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import signal
import sys
from typing import Any

import uvicorn

from benchmarks.linearizability.defects import build_in
from benchmarks.linearizability.facade import facade
from benchmarks.linearizability.objects import ENGINE_OPTIONS, namespaces
from progressor import Engine

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


async def _serve(spec: dict[str, Any]) -> None:
    async with Engine(spec["dsn"], namespaces(), fuse=spec["fuse"], **ENGINE_OPTIONS) as engine:
        if spec["defect"]:
            build_in()
        config = uvicorn.Config(
            facade(engine.client), port=spec["port"], log_config=None, access_log=False, lifespan="off"
        )
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(_serve(json.loads(sys.argv[1])))
