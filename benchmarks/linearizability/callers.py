"""The callers: groups of them work on one object after the other, over HTTP, and record what they see.

Rule: whoever was refused a connection knows that nothing happened; whoever got no answer, or one that is
none, does not know. Half of each group asks one node, half the other.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from benchmarks.linearizability.facade import TOKEN
from benchmarks.linearizability.histories import Operation
from benchmarks.linearizability.objects import REGISTER

_CALLERS = 4
_VALUES = 5
_SECONDS = 2.0
_PAUSE = 0.02
_MOST_OPERATIONS = 80
# Each may have happened at any later moment or not: many of them cost the judge much, and say little.
_MOST_UNKNOWN = 6


@dataclass
class Object:
    """One keyed object, and all that was done to it."""

    service: str
    key: str
    begun: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    history: list[Operation] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)

    @property
    def known(self) -> int:
        """How many operations were answered."""
        return sum(operation.is_known for operation in self.history)

    @property
    def is_worn(self) -> bool:
        """Whether it is time for another one."""
        return len(self.history) >= _MOST_OPERATIONS or len(self.history) - self.known >= _MOST_UNKNOWN

    def is_touched(self, begun: float, ended: float) -> bool:
        """Whether it was worked on between two moments."""
        return self.begun <= ended and self.ended >= begun


class Group:
    """Some callers that share one object at a time; `objects` are those that they are done with."""

    def __init__(self, name: str, service: str, ports: Sequence[int], *, seed: int) -> None:
        self._name = name
        self._service = service
        self._ports = ports
        self._random = random.Random(f"{seed} {name}")
        self._elements = count()
        self._stopping = False
        self.objects: list[Object] = []

    def stop(self) -> None:
        """No new operations."""
        self._stopping = True

    async def run(self) -> None:
        """Until stopped."""
        async with httpx.AsyncClient(timeout=_SECONDS) as http:
            while not self._stopping:
                object_ = Object(self._service, f"{self._name}-{len(self.objects)}")
                await asyncio.gather(*(self._call(http, object_, place) for place in range(_CALLERS)))
                object_.ended = time.monotonic()
                self.objects.append(object_)

    async def _call(self, http: httpx.AsyncClient, object_: Object, place: int) -> None:
        port = self._ports[place % len(self._ports)]
        base = f"http://127.0.0.1:{port}/{object_.service}/{object_.key}"
        while not self._stopping and not object_.is_worn:
            await asyncio.sleep(self._random.expovariate(1 / _PAUSE))
            verb, value = self._draw()
            token = secrets.token_hex(8)
            request = self._request(http, base, verb, value)
            request.headers[TOKEN] = token
            called = time.monotonic()
            try:
                response = await http.send(request)
            except httpx.ConnectError:
                continue
            except httpx.TransportError:
                response = None
            answered = time.monotonic()
            if response is None or response.status_code not in (200, 412):
                object_.history.append(Operation(verb, value, called, None))
                continue
            if response.headers[TOKEN] != token:
                object_.strange.append(
                    f"{verb} {value} was answered {response.text}, which is a stranger's"
                )
            object_.history.append(Operation(verb, value, called, answered, _answer(verb, response)))

    def _draw(self) -> tuple[str, Any]:
        if self._service != REGISTER:
            return self._random.choice([("read", None), ("add", next(self._elements))])
        values = [self._random.randrange(_VALUES) for _ in range(2)]
        return self._random.choice([("read", None), ("write", values[0]), ("cas", tuple(values))])

    def _request(self, http: httpx.AsyncClient, base: str, verb: str, value: Any) -> httpx.Request:
        match verb:
            case "read":
                # At the state as it is, or by a call of the object.
                return http.build_request(self._random.choice(["GET", "POST"]), f"{base}/get")
            case "cas":
                body = {"expected": value[0], "newValue": value[1]}
                return http.build_request("POST", f"{base}/cas", json=body)
            case _:
                path = {"write": "set", "add": "add"}[verb]
                return http.build_request("POST", f"{base}/{path}", json=value)


def _answer(verb: str, response: httpx.Response) -> Any:
    match verb:
        case "read":
            return response.json()
        case "cas":
            return response.status_code == 200
        case _:
            return None
