"""`progressor dev`: the console that it serves."""

from __future__ import annotations

import socket
from collections.abc import Callable

import httpx

from tests.cli.conftest import Running

Spawn = Callable[..., Running]


def _console(service: Running) -> str:
    url: str = service.fields_of('"serving"')["console"]
    return url


def test_it_serves_the_console(spawn: Spawn, dsn: str) -> None:
    """Its address is logged; the next one takes another port, if the first has the usual one."""
    first = spawn("dev", "shop:orders", PROGRESSOR_DATABASE_URL=dsn)
    second = spawn("dev", "shop:orders", PROGRESSOR_DATABASE_URL=dsn)
    urls = {_console(first), _console(second)}
    assert len(urls) == 2
    for url in urls:
        page = httpx.get(url, timeout=30)
        assert (page.status_code, "shop.order" in page.text) == (200, True)


def test_a_port_that_is_taken_is_refused(spawn: Spawn, dsn: str) -> None:
    """Only the usual port has a substitute: one that was asked for has none."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        dev = spawn("dev", "shop:orders", "--port", port, PROGRESSOR_DATABASE_URL=dsn)
        assert dev.end() == 2
    assert "choose another port with --port" in dev.output
