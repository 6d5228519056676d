"""The keyed objects: a register with compare-and-set, and a set that grows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from progressor import Namespace, Process, Reject

REGISTER = "Register"
SET = "Set"

LEASE_SECONDS = 1.0
ENGINE_OPTIONS: dict[str, Any] = {
    "lease_age": timedelta(seconds=LEASE_SECONDS),
    "heartbeat_interval": timedelta(seconds=0.2),
    "zombie_interval": timedelta(seconds=0.3),
    "zombie_grace": timedelta(seconds=1),
    "scan_interval": timedelta(seconds=0.4),
    "reply_poll_interval": timedelta(seconds=0.3),
    "patience": timedelta(seconds=4),
    "stop_grace": timedelta(seconds=2),
}

Args = dict[str, Any]


def namespaces() -> list[Namespace]:
    """Both; a call whose worker was lost runs again, because nobody is there to repair anything."""
    return [_register(), _set()]


def _objects(name: str) -> Namespace:
    namespace = Namespace(
        name, on_zombie="retry", zombie_attempts=1_000_000, step_timeout=timedelta(seconds=3)
    )

    @namespace.init
    async def first(process: Process[Any]) -> None:
        process.state = None

    @namespace.call
    async def get(process: Process[Any], args: Args) -> Args:
        return _answer(args, process.state)

    return namespace


def _register() -> Namespace:
    register = _objects(REGISTER)

    @register.call(name="set")
    async def put(process: Process[Any], args: Args) -> Args:
        process.state = args["value"]
        return _answer(args)

    @register.call
    async def cas(process: Process[Any], args: Args) -> Args:
        if process.state != args["value"]["expected"]:
            raise Reject("precondition failed", token=args["token"])
        process.state = args["value"]["newValue"]
        return _answer(args)

    return register


def _set() -> Namespace:
    grown = _objects(SET)

    @grown.call
    async def add(process: Process[Any], args: Args) -> Args:
        process.state = sorted({*(process.state or ()), args["value"]})
        return _answer(args)

    return grown


def _answer(args: Args, value: Any = None) -> Args:
    return {"token": args["token"], "value": value}
