"""Memory of the API: bounded by its options, whatever is asked of it at once, and others are answered."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from progressor import Client, Engine
from progressor.http.server import memory
from progressor.http.server.connections import HELD_BYTES
from progressor.http.server.options import HttpOptions
from progressor.http.server.problems import Refusal
from tests.deploy.manifests import DEPLOY, documents
from tests.http.test_pages import NS, URL, large

LIMIT = 512 << 20
OPTIONS = HttpOptions()
MIB, KIB = 1 << 20, 1 << 10
# An OS process of the API with its libraries, before its first request.
BASE = 160 * MIB
# A connection, a request under way, and an open watch, beside their content.
CONNECTION, REQUEST, WATCH = 12 * KIB, 64 * KIB, 32 * KIB


def needed() -> int:
    """Bytes that an API needs whose options are the defaults: its container is given as many."""
    connections, requests = OPTIONS.max_connections * CONNECTION, OPTIONS.max_requests * REQUEST
    return (
        BASE + OPTIONS.max_memory_bytes + HELD_BYTES + connections + requests + OPTIONS.max_watches * WATCH
    )


def test_the_shipped_limits_hold_the_shipped_defaults() -> None:
    """In Kubernetes and in systemd."""
    manifests = documents(DEPLOY / "kubernetes/base/api.yaml")
    (pod,) = [each for each in manifests if each["kind"] == "Deployment"]
    (container,) = pod["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == f"{LIMIT // MIB}Mi"
    unit = (DEPLOY / "systemd/progressor-api.service").read_text()
    assert f"MemoryMax={LIMIT // MIB}M" in unit.splitlines()
    assert needed() <= LIMIT


def test_every_single_request_fits_its_memory() -> None:
    """A page, and the largest bodies of few values, while nobody else asks."""
    assert memory.PAGE_WEIGHT * OPTIONS.max_page_bytes <= OPTIONS.max_memory_bytes // 2
    assert memory.PAGE_WEIGHT * OPTIONS.max_value_bytes <= OPTIONS.max_memory_bytes // 2
    assert memory.BODY_WEIGHT * OPTIONS.max_import_bytes <= OPTIONS.max_memory_bytes // 2


async def test_memory_is_granted_in_turn_and_first_shares_first() -> None:
    """Who has half waits for others, and nobody has more than there is."""
    shared = memory.Memory(100)
    await shared.take("a", 60)
    other = asyncio.ensure_future(shared.take("b", 50))
    await asyncio.sleep(0)
    more = asyncio.ensure_future(shared.take("a", 10))
    await asyncio.sleep(0)
    assert (shared.free, other.done(), more.done()) == (40, False, False)
    shared.give_back("a", 60)
    await asyncio.gather(other, more)
    assert shared.free == 40
    with pytest.raises(Refusal):
        shared.take_now("c", 50)
    waiting = asyncio.ensure_future(shared.take("c", 50))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    shared.give_back("a", 10)
    shared.give_back("b", 50)
    assert (shared.free, shared._waiting) == (100, {})


@dataclass
class Api:
    """A served API in an OS process of its own."""

    url: str
    process: asyncio.subprocess.Process

    async def peak(self) -> int:
        """Stop it: the most memory that it had."""
        status = await asyncio.to_thread(Path(f"/proc/{self.process.pid}/status").read_text)
        (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
        self.process.send_signal(signal.SIGTERM)
        await self.process.wait()
        return int(peak) << 10


@pytest.fixture
async def api(dsn: str) -> AsyncIterator[Api]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "progressor", "api", "--port", str(port)),
        env={**os.environ, "PROGRESSOR_DATABASE_URL": dsn, "PROGRESSOR_LOG_FORMAT": "json"},
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    async with Engine(dsn, [large()]), httpx.AsyncClient(base_url=url, timeout=60) as http:
        while True:
            try:
                await http.get("/health/live")
            except httpx.TransportError:
                assert process.returncode is None
                await asyncio.sleep(0.05)
            else:
                break
        try:
            yield Api(url, process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def answered(http: httpx.AsyncClient, method: str, path: str, **sent: object) -> int:
    """The status of an answer that is read and thrown away."""
    async with http.stream(method, path, **sent) as answer:  # type: ignore[arg-type] # as httpx has them
        async for _ in answer.aiter_raw():
            pass
    return answer.status_code


async def heads(http: httpx.AsyncClient, port: int) -> None:
    """100 MB of header fields over each of some connections."""

    async def send() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"GET / HTTP/1.1\r\n")
            for _ in range(100):
                writer.write(b"a:b\r\n" * 200_000)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    await asyncio.gather(*(send() for _ in range(4)))


async def filled(http: httpx.AsyncClient) -> None:
    """A process of 26 tasks of 8 MB each."""
    await answered(http, "POST", f"{URL}/p", json={})
    for _ in range(26):
        args = {"events": 1, "size": 4_000_000}
        assert await answered(http, "POST", f"{URL}/p/calls/fill", json=args) == 200


async def traces(http: httpx.AsyncClient, port: int) -> None:
    await filled(http)
    asked = (answered(http, "GET", f"{URL}/p/trace", params={"limit": 1000}) for _ in range(20))
    assert set(await asyncio.gather(*asked)) <= {200, 503}


async def histories(http: httpx.AsyncClient, port: int) -> None:
    await filled(http)
    asked = (answered(http, "GET", f"{URL}/p/events", params={"limit": 1000}) for _ in range(20))
    assert set(await asyncio.gather(*asked)) <= {200, 503}


async def imports(http: httpx.AsyncClient, port: int) -> None:
    """Of large events, of small ones, and of what is wrong with each."""
    few = json.dumps({"events": [{"payload": "x" * 1_000_000}] * 15}).encode()
    many = json.dumps({"events": [{"payload": number, "name": "n"} for number in range(60_000)]}).encode()
    wrong = json.dumps({"events": [{"payload": 1, "x": 1}] * 60_000}).encode()
    json_type = {"Content-Type": "application/json"}
    asked = (
        answered(http, "PUT", f"{URL}/i{place}", content=body, headers=json_type)
        for place, body in enumerate((few, many, wrong) * 2)
    )
    assert set(await asyncio.gather(*asked)) <= {201, 413, 422, 503}


@pytest.mark.parametrize("worst", [heads, traces, histories, imports])
async def test_the_worst_that_is_asked_fits_the_limit(
    api: Api, worst: Callable[[httpx.AsyncClient, int], Awaitable[None]]
) -> None:
    """And while it is asked, others are answered."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=api.url, timeout=120, limits=limits) as http:
        asking = asyncio.ensure_future(worst(http, int(api.url.rpartition(":")[2])))
        seen = 0
        while not asking.done():
            assert await answered(http, "GET", "/health/live") == 200
            seen += 1
        await asking
        assert seen
    peak = await api.peak()
    assert peak < LIMIT


async def poll(port: int, path: str, token: str) -> int:
    """The status of a long poll, over a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = (f"GET {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}", "Prefer: wait=60")
    writer.write("\r\n".join((*lines, "Connection: close", "", "")).encode())
    status = int((await reader.readline()).split()[1])
    await reader.read()
    writer.close()
    await writer.wait_closed()
    return status


async def test_a_caller_with_a_thousand_polls_leaves_places_to_others(api: Api, dsn: str) -> None:
    """Beyond its share it is told to come back; its other polls are answered, and so is everybody else."""
    async with Client(dsn) as client:
        rights = {
            "scopes": ["processes:start", "processes:read", "state:read"],
            "namespaces": [NS],
            "lifetime": None,
        }
        one, two = [(await client.tokens.create("x", **rights)).bearer.text for _ in range(2)]
        await client.start(NS, "p", {})
        await client.pause(NS)
        accepted = await client.submit_call(NS, "p", "fill", {"events": 0, "size": 1})
        path = f"{URL}/p/tasks/{accepted.task_id}?fingerprint={accepted.fingerprint}"
        port = int(api.url.rpartition(":")[2])
        polls = [asyncio.ensure_future(poll(port, path, one)) for _ in range(1000)]
        # All but its share.
        early = iter(asyncio.as_completed(polls))
        assert {await next(early) for _ in range(1000 - OPTIONS.max_requests // 2 - 1)} == {429}
        headers = {"Authorization": f"Bearer {two}"}
        async with httpx.AsyncClient(base_url=api.url, headers=headers, timeout=60) as other:
            assert await answered(other, "GET", f"{URL}/p") == 200
            later = {"Prefer": "respond-async"}
            assert await answered(other, "POST", f"{URL}/q", json={}, headers=later) == 202
        await client.resume(NS)
        assert set(await asyncio.gather(*polls)) == {200, 429}
    assert await api.peak() < LIMIT
