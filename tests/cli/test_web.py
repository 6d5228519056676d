"""`progressor web` as an OS process: it serves, stops, and refuses to begin without what it needs."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx

from progressor import Engine
from tests import postgres
from tests.cli.conftest import Ended, Running
from tests.engine.meters import meters
from tests.support import NS

Spawn = Callable[..., Running]


def _web(spawn: Spawn, dsn: str, *args: str, **env: str) -> tuple[Running, str]:
    server = spawn("web", "--port", "0", *args, PROGRESSOR_DATABASE_URL=dsn, **env)
    return server, server.fields_of('"serving"')["url"]


def test_it_serves_and_stops_in_order(spawn: Spawn, dsn: str) -> None:
    """A page with its style; SIGTERM ends it with status 0, and its log has no address of a page."""
    server, url = _web(spawn, dsn)
    page = httpx.get(f"{url}/processes?metadata=a%3Dsecret", timeout=30)
    assert (page.status_code, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "server" not in page.headers
    style = page.text.partition('<link rel="stylesheet" href="./')[2].partition('"')[0]
    assert httpx.get(f"{url}/{style}", timeout=30).headers["Content-Type"].startswith("text/css")
    # Pages that were shown have no line in the log, one that was refused has.
    assert httpx.get(f"{url}/processes?timer=~secret", timeout=30).status_code == 400
    server.signal(signal.SIGTERM)
    assert server.end() == 0, server.output
    assert "console stopped" in server.output
    assert "request answered" in server.output
    assert "secret" not in server.output


async def test_pages_that_wait_for_hints_hold_up_no_stop(spawn: Spawn, dsn: str) -> None:
    """Twenty streams end as soon as the server is asked to, which else waits for those who are answered."""
    async with Engine(dsn, [meters()]) as engine:
        await engine.client.start(NS, "m1")
    server, url = _web(spawn, dsn, PROGRESSOR_HTTP_DRAIN="300")
    with ExitStack() as stack:
        streams = []
        for _ in range(20):
            asked = httpx.stream("GET", f"{url}/processes/{NS}/m1/hints", timeout=60)
            answer = stack.enter_context(asked)
            assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            streams.append(answer.iter_text())
        for each in streams:
            text = ""
            while "event: changed" not in text:
                text += next(each)
        assert server.end_by(signal.SIGTERM) == 0, server.output
        # Each has an end, and was not cut off.
        for each in streams:
            "".join(each)


def test_it_answers_this_machine_alone(spawn: Spawn, dsn: str, progressor: Callable[..., Ended]) -> None:
    """By its own names, as long as there is no token; with one, whoever signs in."""
    _, url = _web(spawn, dsn, PROGRESSOR_HTTP_TOKEN_KEPT_FOR="0")
    assert httpx.get(url, headers={"Host": "evil.example"}, timeout=30).status_code == 403
    env = {"PROGRESSOR_DATABASE_URL": dsn}
    made = progressor("token", "create", "anna", "--scope", "processes:read", "-n", "*", **env)
    assert made.status == 0, made.err
    asked = httpx.get(f"{url}/processes", timeout=30)
    assert (asked.status_code, asked.headers["Location"]) == (303, "./sign-in?back=processes")
    said = {"Authorization": f"Bearer {made.out.strip()}"}
    assert httpx.get(f"{url}/processes", headers=said, timeout=30).status_code == 200
    assert httpx.get(f"{url}/audit", headers=said, timeout=30).status_code == 403


def test_it_only_reads(spawn: Spawn, dsn: str) -> None:
    """With `--read-only` there is no address that changes anything."""
    _, url = _web(spawn, dsn, "--read-only")
    assert httpx.post(f"{url}/namespaces/shop/pause", timeout=30).status_code == 404
    assert httpx.post(f"{url}/schedules", timeout=30).status_code == 405


def test_off_this_machine_it_needs_a_token(spawn: Spawn, dsn: str) -> None:
    """Else it does not begin, and says what to do."""
    server = spawn("web", "--host", "0.0.0.0", "--port", "0", PROGRESSOR_DATABASE_URL=dsn)
    assert server.end() == 2
    assert "progressor token create" in server.output


def test_a_port_that_is_taken_is_named(spawn: Spawn, dsn: str) -> None:
    """With what to do."""
    _, url = _web(spawn, dsn)
    second = spawn("web", "--port", url.rpartition(":")[2], PROGRESSOR_DATABASE_URL=dsn)
    assert second.end() == 2
    assert "--port" in second.output
    assert "Traceback" not in second.output


def test_it_says_which_extra_is_missing(spawn: Spawn, dsn: str, tmp_path: Path) -> None:
    """Without its libraries: a usage error, and no other command needs them."""
    (tmp_path / "jinja2.py").write_text("raise ModuleNotFoundError('no', name='jinja2')")
    path = f"{tmp_path}:{Path(__file__).parents[2]}"
    server = spawn("web", "--port", "0", PROGRESSOR_DATABASE_URL=dsn, PYTHONPATH=path)
    assert server.end() == 2, server.output
    assert "progressor-engine[web]" in server.output
    assert "Traceback" not in server.output
    assert spawn("search", PROGRESSOR_DATABASE_URL=dsn, PYTHONPATH=path).end() == 0


def test_it_brings_its_own_database(spawn: Spawn, data_dir: Path) -> None:
    """In a fresh folder `--embedded` makes it and its tables, as `dev` does."""
    env = {"PROGRESSOR_DATA_DIR": str(data_dir), **postgres.settings()}
    server = spawn("web", "--port", "0", "--embedded", **env)
    assert server.fields_of("database migrated")["before"] is None
    assert httpx.get(server.fields_of('"serving"')["url"], timeout=30).status_code == 200
    assert server.end_by(signal.SIGTERM) == 0, server.output
