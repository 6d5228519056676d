"""An application with a lifespan. Each of its OS processes logs what happens in it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from progressor import App, CallNext, Intent, Namespace, Process, StepView

songs = Namespace("studio.song")


@songs.call
async def record(process: Process, gate: str | None, *, microphone: str) -> str:
    say("step begun")
    while gate is not None and not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - another process opens it
        await asyncio.sleep(0.01)
    say("step ended")
    return microphone


def say(text: str) -> None:
    """Log it: what is printed comes before lines that the log has not written yet."""
    logging.getLogger("studio").warning("%s in %d", text, os.getpid())


@asynccontextmanager
async def lifespan(_app: App) -> AsyncIterator[Mapping[str, Any]]:
    mode = os.environ.get("STUDIO", "")
    say("lifespan entered")
    if mode == "fails to begin":
        raise LookupError("no microphone")
    if mode == "hangs":
        await asyncio.Event().wait()
    yield {} if mode == "gives nothing" else {"microphone": str(os.getpid())}
    say("lifespan left")
    if mode == "fails to end":
        raise LookupError("the microphone is gone")


async def noted(step: StepView, call_next: CallNext) -> Intent:
    intent = await call_next(step)
    say(f"{step.name} noted")
    return intent


app = App([songs], lifespan=lifespan, middleware=[noted])
