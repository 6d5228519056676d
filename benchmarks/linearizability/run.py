"""One run: nodes, callers and faults; then every object is judged."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.chaos.server import Server
from benchmarks.chaos.supervisor import Member
from benchmarks.linearizability.callers import Group, Object
from benchmarks.linearizability.facade import TOKEN
from benchmarks.linearizability.judge import grow_only_set, judge, register
from benchmarks.linearizability.nemesis import FAULTS, Loss, Nemesis
from benchmarks.linearizability.objects import REGISTER, SET

_MODELS = {REGISTER: register, SET: grow_only_set}
# Nodes whose steps are fused with their requests, and nodes whose steps are not.
_NODES = {"fused": "always", "ordinary": "never"}
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """How long, how hard, with which numbers and faults, and how many known answers there must be."""

    seconds: float
    seed: int = 1
    pause: float = 1.5
    kinds: Sequence[str] = FAULTS
    demand: int = 1000
    planted: bool = False


@dataclass
class Report:
    """What was done, what was answered, and what contradicts it."""

    options: Options
    faults: dict[str, int]
    objects: dict[str, int]
    known: dict[str, int]
    unknown: int
    spared: int
    findings: list[str]

    @property
    def holds(self) -> bool:
        """Whether every object is linearizable, no answer is a stranger's, and enough is known."""
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        return {"holds": self.holds, **asdict(self)}


def carry_out(options: Options) -> Report:
    """A run on a PostgreSQL of its own."""
    with tempfile.TemporaryDirectory(prefix="prg-objects-", dir="/tmp", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)  # as root, the server is another user
        server = Server(Path(home) / "postgres")
        try:
            return asyncio.run(_carry_out(server, Path(home), options))
        finally:
            server.leave()


async def _carry_out(server: Server, home: Path, options: Options) -> Report:
    ports = {name: _free_port() for name in _NODES}
    nodes = [
        Member(
            name,
            "node",
            server.role_dsn,
            home=home,
            seed=options.seed,
            defect="wrong answers" if options.planted else None,
            module="benchmarks.linearizability.node",
            port=ports[name],
            fuse=fuse,
        )
        for name, fuse in _NODES.items()
    ]
    services = {"first": REGISTER, "second": REGISTER, "third": SET}
    groups = [Group(name, of, list(ports.values()), seed=options.seed) for name, of in services.items()]
    nemesis = Nemesis(server, nodes, kinds=options.kinds, seed=options.seed, pause=options.pause)
    try:
        for node in nodes:
            node.start()
        await _serving(list(ports.values()), nodes)
        async with asyncio.TaskGroup() as tasks:
            for group in groups:
                tasks.create_task(group.run())
            await asyncio.sleep(options.pause)
            await nemesis.run(options.seconds)
            await asyncio.sleep(2 * options.pause)
            for group in groups:
                group.stop()
    finally:
        await asyncio.gather(*(node.kill() for node in nodes))
    objects = [object_ for group in groups for object_ in group.objects]
    return report_of(options, nemesis.done, nemesis.losses, objects)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def _serving(ports: Sequence[int], nodes: Sequence[Member]) -> None:
    end = time.monotonic() + _START_SECONDS
    async with httpx.AsyncClient() as http:
        for port in ports:
            while True:
                try:
                    url = f"http://127.0.0.1:{port}/{REGISTER}/none/get"
                    if (await http.get(url, headers={TOKEN: "-"})).is_success:
                        break
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
                if time.monotonic() > end:
                    words = "\n".join(line for node in nodes for line in node.last_words())
                    raise RuntimeError(f"no node in {_START_SECONDS:g} s:\n{words}")


def report_of(
    options: Options, faults: Sequence[str], losses: Sequence[Loss], objects: Sequence[Object]
) -> Report:
    """Judge all objects but those whose commits were lost; of them nobody may hear what is not so."""
    findings = [f"{o.service}/{o.key}: {text}" for o in objects for text in o.strange]
    known: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    spared = 0
    for object_ in objects:
        findings += _invented(object_)
        if _is_spared(object_, losses):
            spared += 1
            continue
        judged[object_.service] += 1
        known[object_.service] += object_.known
        judgement = judge(_MODELS[object_.service], object_.history)
        if not judgement.is_linearizable:
            findings.append(f"{object_.service}/{object_.key}: no order explains {judgement.misfit}")
    for service in _MODELS:
        if known[service] < options.demand:
            findings.append(
                f"{service}: {known[service]} known answers are too few, {options.demand} wanted"
            )
    unknown = sum(len(object_.history) - object_.known for object_ in objects)
    return Report(options, dict(Counter(faults)), dict(judged), dict(known), unknown, spared, findings)


def _is_spared(object_: Object, losses: Sequence[Loss]) -> bool:
    """Whether commits on it were lost: what was acknowledged may be gone, so no order need explain it."""
    return any(object_.is_touched(loss.begun, loss.ended) for loss in losses)


def _invented(object_: Object) -> Iterator[str]:
    """Whatever is lost, nobody reads what nobody wrote."""
    written: list[Any] = [None]
    for operation in object_.history:
        match operation.verb:
            case "write" | "add":
                written.append(operation.value)
            case "cas":
                written.append(operation.value[1])
    for operation in object_.history:
        if operation.verb == "read" and operation.is_known:
            answer = operation.answer
            if any(value not in written for value in (answer if isinstance(answer, list) else [answer])):
                yield f"{object_.service}/{object_.key}: {answer} was read, and nobody wrote it"
