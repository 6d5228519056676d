"""A keyring in the test kit: in a world, and in a step without a database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from progressor import Namespace, Process
from progressor.codecs import Keyring
from progressor.testing import MakeWorld, step

RING = Keyring("k1", {"k1": bytes(32)}, plain="refuse")
vault = Namespace("vault", state=list[str], codec=RING)


@vault.init
async def begin(process: Process[list[str]], words: list[str]) -> int:
    process.state = words
    process.emit("begun", words=words)
    process.set_timer(after=timedelta(days=30))
    return len(words)


@vault.call
async def add(process: Process[list[str]], word: str) -> str:
    process.state.append(f"{word} of {process.context}")
    assert all("words" in each.payload for each in process.history)
    return word


@vault.timeout
async def fire(process: Process[list[str]]) -> None:
    process.state.append("fired")


async def test_a_world_has_a_keyring(progressor_world: MakeWorld) -> None:
    """Its client seals and reads with that of the namespace; nothing is plain in the tables."""
    async with progressor_world([vault]) as world:
        assert await world.client.start(begin, "p", ["a"]) == 1
        assert await world.client.call(add, "p", "b", context="me") == "b"
        await world.advance(timedelta(days=31))
        process = await world.client.process(vault, "p").get()
        assert process.state == ["a", "b of me", "fired"]
        assert (process.aux_state or b"").startswith(RING.active_prefix)


async def test_a_step_has_a_keyring() -> None:
    """State, arguments, context, history and answer go through it, whatever the process is called."""
    for process_id in ("test", "acme/1"):
        given: Any = {"process_id": process_id, "history": [{"words": []}]}
        done = await step(add, "b", state=["a"], context="me", **given)
        assert (done.state, done.answer) == (["a", "b of me"], "b")
