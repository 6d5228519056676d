"""Processes that do as they are told, and an oracle of what comes of it, for test_api_model.

Rule: what a handler does stands in its request (or, for a timeout, in the state), so the oracle knows it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel

from progressor import Namespace, NonRetryable, Process, Reject, RetryPolicy

NS = "bank.account"
FAR = timedelta(days=300)
Timer = Literal["", "soon", "far", "unset", "remove soon", "remove far"]
End = Literal["answer", "reject", "raise", "fatal", "remove"]
Outcome = tuple[Any, ...]


class Act(BaseModel):
    """What a handler does; `then` is what the next timeout will do."""

    add: int = 0
    emits: int = 0
    timer: Timer = ""
    end: End = "answer"
    then: Act | None = None


class Account(BaseModel):
    balance: int = 0
    then: Act | None = None


bank = Namespace(
    NS,
    state=Account,
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), max_attempts=2),
    concurrency=8,
)


def _do(process: Process[Account], act: Act) -> int:
    if process.state is None:
        process.state = Account()
    process.state.balance += act.add
    if act.then is not None:
        process.state.then = act.then
    for place in range(act.emits):
        process.emit(f"e{place}", balance=process.state.balance)
    if act.timer == "unset":
        process.unset_timer()
    elif act.timer:
        after = timedelta(0) if act.timer.endswith("soon") else FAR
        process.set_timer(after=after, remove=act.timer.startswith("remove"))
    match act.end:
        case "reject":
            raise Reject("no", balance=process.state.balance)
        case "raise":
            raise ValueError("no")
        case "fatal":
            raise NonRetryable("never")
        case "remove":
            process.remove()
    return process.state.balance


@bank.init
async def begin(process: Process[Account], act: Act) -> int:
    return _do(process, act)


@bank.call
async def act(process: Process[Account], act: Act) -> int:
    return _do(process, act)


@bank.call
def act_in_thread(process: Process[Account], act: Act) -> int:
    return _do(process, act)


@bank.timeout
async def fire(process: Process[Account]) -> None:
    planned = process.state.then if process.state else None
    if process.state is not None:
        process.state.then = None
    _do(process, planned or Act())


@bank.repair
async def mend(process: Process[Account], act: Act) -> int:
    return _do(process, act)


@dataclass
class Model:
    """One process, as it must be once nothing is under way."""

    account: Account = field(default_factory=Account)
    status: str = "running"
    events: int = 0
    timer: str | None = None
    # The first event that a walk has left.
    first_event: int = 1


class Oracle:
    """All processes; each method returns what the caller must get."""

    def __init__(self) -> None:
        self.processes: dict[str, Model] = {}

    def start(self, process_id: str, act: Act) -> Outcome:
        if process_id in self.processes:
            return ("exists",)
        model = self.processes[process_id] = Model()
        outcome = self._do(process_id, model, act)
        if outcome[0] == "rejected":
            del self.processes[process_id]
        elif outcome[0] == "failed":
            model.status = "error"
        return outcome

    def call(self, process_id: str, act: Act) -> Outcome:
        model = self.processes.get(process_id)
        if model is None:
            return ("not found",)
        if model.status == "error":
            return ("broken",)
        outcome = self._do(process_id, model, act)
        if outcome[0] == "failed":
            model.status = "error"
        return outcome

    def repair(self, process_id: str, act: Act) -> Outcome:
        model = self.processes.get(process_id)
        if model is None or model.status != "error":
            return ("not found",) if model is None else ("not broken",)
        outcome = self._do(process_id, model, act)
        if outcome[0] == "answer":
            model.status = "running"
        return outcome

    def simple_repair(self, process_id: str) -> Outcome:
        model = self.processes.get(process_id)
        if model is None or model.status != "error":
            return ("not found",) if model is None else ("not broken",)
        model.status = "running"
        return "answer", None

    def put(
        self, process_id: str, balance: int, events: int, timer: str | None, *, broken: bool
    ) -> Outcome:
        if process_id in self.processes:
            return ("exists",)
        status = "error" if broken else "running"
        self.processes[process_id] = Model(Account(balance=balance), status, events, timer)
        return "answer", None

    def remove(self, process_id: str) -> Outcome:
        found = self.processes.pop(process_id, None)
        return ("answer", None) if found else ("not found",)

    def sweep(self, newest: int | None) -> None:
        """Let a walk delete all events but the newest so many of each process; None: it keeps them all."""
        for model in self.processes.values():
            if newest is not None:
                model.first_event = max(model.first_event, model.events - newest + 1)

    def settle(self) -> None:
        """Let all timers that are due run; those of broken processes are held."""
        for process_id, model in list(self.processes.items()):
            while self.processes.get(process_id) is model and model.timer in ("soon", "remove soon"):
                if model.status == "error":
                    break
                if model.timer == "remove soon":
                    del self.processes[process_id]
                    continue
                model.timer = None
                before = deepcopy(model.account)
                planned, model.account.then = model.account.then or Act(), None
                outcome = self._do(process_id, model, planned)
                if outcome[0] in ("rejected", "failed"):
                    # Tried again, it does the same again.
                    model.account, model.timer = before, "soon"
                    model.status = "error"

    def _do(self, process_id: str, model: Model, act: Act) -> Outcome:
        match act.end:
            case "reject":
                return "rejected", "no", {"balance": model.account.balance + act.add}
            case "raise":
                return "failed", "ValueError: no"
            case "fatal":
                return "failed", "NonRetryable: never"
        model.account.balance += act.add
        if act.then is not None:
            model.account.then = act.then
        model.events += act.emits
        if act.end == "remove":
            del self.processes[process_id]
        elif act.timer:
            model.timer = None if act.timer == "unset" else act.timer
        return "answer", model.account.balance
