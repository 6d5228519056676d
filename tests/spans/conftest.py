"""Apps with an SDK of OpenTelemetry, each in an OS process of its own: the SDK is set up once in each."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0


class Shown(NamedTuple):
    """A span that has ended."""

    name: str
    kind: str
    place: str
    parent: str | None
    links: list[str]
    attributes: dict[str, Any]
    status: str
    description: str | None
    events: int

    @property
    def trace_id(self) -> str:
        return self.place.partition("-")[0]


class Program:
    """An OS process of `program.py`, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.heard: list[str] = []

    async def says(self, word: str) -> str:
        """Return the rest of the first line from now on that begins with a word."""
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            while line := (await self.process.stdout.readline()).decode():
                self.heard.append(line)
                if line.startswith(word):
                    return line.removeprefix(word).strip()
        raise AssertionError(f"it ended without saying {word!r}: {''.join(self.heard)}")

    async def end(self) -> list[Shown]:
        """Let it end, and return its spans in the order in which they ended."""
        async with asyncio.timeout(DEADLINE):
            rest, _ = await self.process.communicate(b"")
        self.heard += rest.decode().splitlines(keepends=True)
        assert self.process.returncode == 0, "".join(self.heard)
        return [Shown(**facts) for facts in self._said("span ")]

    @property
    def answers(self) -> list[Any]:
        """The answers that it has got and said so far."""
        return self._said("answer ")

    def _said(self, word: str) -> list[Any]:
        return [json.loads(line.removeprefix(word)) for line in self.heard if line.startswith(word)]


Run = Callable[..., Awaitable[Program]]


@pytest.fixture
async def run(dsn: str) -> AsyncIterator[Run]:
    """`await run("worker", dsn)`: a program, killed after the test if it still runs."""
    async with AsyncExitStack() as stack:

        async def start(*arguments: str) -> Program:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.spans.program",
                *arguments,
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            stack.push_async_callback(killed, process)
            return Program(process)

        yield start


async def killed(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        # Reading to the end closes the pipes.
        await process.communicate()
