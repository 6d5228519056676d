"""The log line of a request says what it was for, and has the id that its answer has."""

from __future__ import annotations

import logging
import re
from typing import Any

import httpx
import pytest

from progressor.http.server.middleware.line_budget import LineBudget
from progressor.http.server.options import HttpOptions
from progressor.http.server.routers import health
from progressor.loggers import message_of
from tests.http import shop
from tests.http.conftest import Serve
from tests.support import eventually

ORDER = "/v1/namespaces/shop.order/processes/o1"
BYTES = {"Content-Type": "application/octet-stream"}
FACTS = ("namespace", "process_id", "call", "task_id")


class Lines:
    """The facts of the lines of requests, in their order."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "progressor.http")
        self._caplog = caplog

    async def last(self, count: int = 1) -> dict[str, Any]:
        """The last line, once there are so many."""
        await eventually(lambda: len(self._all()) >= count, "logged")
        return self._all()[-1]

    def _all(self) -> list[dict[str, Any]]:
        return [vars(each) for each in self._caplog.records if message_of(each) == "request answered"]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    return Lines(caplog)


def facts(line: dict[str, Any]) -> dict[str, Any]:
    """Of a line: what the request was for."""
    return {name: line[name] for name in FACTS if name in line}


async def test_a_line_names_process_call_and_task(api: httpx.AsyncClient, lines: Lines) -> None:
    """Of what is accepted also the task, whether its answer came or not, and of what is read."""
    of_order = {"namespace": "shop.order", "process_id": "o1"}
    started = await api.post(ORDER, json={"item": "tea"})
    task_id = int(re.search(r"/tasks/(\d+)", started.headers["Content-Location"])[1])  # type: ignore[index]
    assert facts(await lines.last(1)) == of_order | {"task_id": task_id}
    noted = await api.post(f"{ORDER}/notices/pay", json={"amount": 2})
    found = facts(await lines.last(2))
    assert found == of_order | {"call": "pay", "task_id": noted.json()["task_id"]}
    await api.get(noted.headers["Location"], headers={"Prefer": "wait=30"})
    assert facts(await lines.last(3)) == of_order | {"task_id": found["task_id"]}
    await api.get(ORDER)
    assert facts(await lines.last(4)) == of_order
    missing = await api.post("/v1/namespaces/shop.order/processes/other/calls/pay", json={"amount": 2})
    assert missing.status_code == 404
    assert facts(await lines.last(5)) == {"namespace": "shop.order", "process_id": "other", "call": "pay"}


async def test_a_line_has_nothing_that_a_caller_makes_up(api: httpx.AsyncClient, lines: Lines) -> None:
    """No call that the namespace has not, no id that is too long for one, nothing of who is not let in."""
    refused = await api.post(f"{ORDER}/calls/an-invention", json=1)
    assert refused.status_code == 404
    assert facts(await lines.last(1)) == {"namespace": "shop.order", "process_id": "o1"}
    assert (await api.get("/v1/namespaces/shop.order/processes/" + "x" * 257)).status_code == 400
    assert facts(await lines.last(2)) == {"namespace": "shop.order"}
    assert (await api.get("/v1/namespaces/shop.order/nothing")).status_code == 404
    assert facts(await lines.last(3)) == {}


async def test_a_raw_namespace_may_have_any_call(serve: Serve, lines: Lines) -> None:
    """It publishes none."""
    api = await serve(shop.raw())
    path = "/v1/namespaces/shop.raw/processes/p1/calls/"
    assert (await api.post(path + "any", content=b"1", headers=BYTES)).status_code == 404
    assert (await lines.last(1))["call"] == "any"
    assert (await api.post(path + "y" * 300, content=b"1", headers=BYTES)).status_code >= 400
    assert "call" not in await lines.last(2)


@pytest.mark.parametrize("given", ["9f-1", "Root=1-67891233-abcdef012345678912345678", "a" * 128])
async def test_an_id_that_a_request_has_is_kept(api: httpx.AsyncClient, lines: Lines, given: str) -> None:
    """In its answer, whatever that is, and in its line."""
    for count, path in enumerate((ORDER, "/nothing", "/health/live"), 1):
        answer = await api.get(path, headers={"X-Request-Id": given})
        assert answer.headers.get_list("X-Request-Id") == [given]
        assert (await lines.last(count))["request_id"] == given


@pytest.mark.parametrize(
    "given", [[], [""], ["a b"], ["-a"], ['a"'], ["a" * 129], ["a", "b"], ["ä".encode()]]
)
async def test_any_other_request_gets_one(api: httpx.AsyncClient, lines: Lines, given: list[str]) -> None:
    """Where there is none, two, or one that is no plain word."""
    answers = [await api.get(ORDER, headers=[("X-Request-Id", each) for each in given]) for _ in range(2)]
    made = [each.headers["X-Request-Id"] for each in answers]
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in made)
    assert made[0] != made[1]
    assert (await lines.last(2))["request_id"] == made[1]


async def test_a_defect_is_found_by_its_id(
    api: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of a defect says no more than its id; the line with the traceback has it too."""

    async def broken(server: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(health, "health_of", broken)
    answer = await api.get("/health", headers={"X-Request-Id": "r-1"})
    assert (answer.status_code, answer.headers["X-Request-Id"]) == (500, "r-1")
    (line,) = [each for each in caplog.records if message_of(each) == "request failed"]
    assert vars(line)["request_id"] == "r-1"
    assert line.exc_info


def test_a_budget_is_that_of_one_second() -> None:
    """What one second leaves over is not kept for the next one."""
    budget = LineBudget(2)
    assert [budget.take(now) for now in (7.0, 7.1, 7.9, 8.0, 8.5, 8.9, 20.0)] == [
        *(True, True, False),
        *(True, True, False),
        True,
    ]
    assert not LineBudget(0).take(1.0)


async def test_lines_over_the_limit_are_counted(
    serve: Serve, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the next line. A failure has a line, and each answer its id, however few lines there may be."""

    async def broken(server: object) -> None:
        raise RuntimeError("a defect")

    api = await serve(shop.make(), options=HttpOptions(max_log_lines=0))
    for given in ("r-1", "r-2"):
        assert (await api.get("/health/live", headers={"X-Request-Id": given})).headers[
            "X-Request-Id"
        ] == given
    monkeypatch.setattr(health, "health_of", broken)
    for given, unlogged in (("r-3", 2), ("r-4", None)):
        await api.get("/health", headers={"X-Request-Id": given})
        line = await lines.last(1 if unlogged else 2)
        assert (line["request_id"], line["status"], line.get("unlogged")) == (given, 500, unlogged)


async def test_without_a_limit_set_each_line_is_whole(api: httpx.AsyncClient, lines: Lines) -> None:
    """It has no field about lines that were left out."""
    await api.get("/health/live")
    assert "unlogged" not in await lines.last()
