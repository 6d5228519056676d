"""Spans over OS processes: what is one trace, and what begins a trace of its own with a link."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from progressor import Client, TaskType
from progressor.schedules import trigger
from tests.acceptance.support import until
from tests.spans.conftest import ROOT, Run, Shown
from tests.spans.program import NS, OTHER, SECRET


def named(spans: Sequence[Shown], name: str) -> Shown:
    (found,) = [span for span in spans if span.name == name]
    return found


async def asked(run: Run, dsn: str, text: str, *, role: str = "ask") -> tuple[list[Shown], list[object]]:
    """The spans of a client that makes these requests, and their answers."""
    client = await run(role, dsn, text)
    spans = await client.end()
    return spans, client.answers


async def test_a_call_over_two_processes_is_one_trace_of_three_spans(run: Run, dsn: str) -> None:
    """The caller's, the client's `call`, and the worker's `process`, the parent of those of the handler."""
    worker = await run("worker", dsn)
    await worker.says("ready")
    client = await run("ask", dsn, "start, call pay, call block")
    ours = await client.end()
    theirs = await worker.end()
    call, process = named(ours, f"call {NS}/pay"), named(theirs, f"process {NS}/pay")
    (caller,) = [span for span in ours if span.place == call.parent]
    assert (caller.name, caller.parent) == ("checkout", None)
    assert (process.parent, process.links) == (call.place, [])
    assert {span.trace_id for span in (caller, call, process)} == {caller.trace_id}
    assert (call.kind, process.kind) == ("CLIENT", "CONSUMER")
    assert named(theirs, "charge").parent == process.place
    assert named(theirs, "in a thread").parent == named(theirs, f"process {NS}/block").place
    assert [span.status for span in (call, process)] == ["UNSET", "UNSET"]
    common = {
        "messaging.system": "progressor",
        "messaging.destination.name": NS,
        "messaging.message.id": call.attributes["messaging.message.id"],
        "messaging.message.conversation_id": f"{NS}/p",
        "progressor.process_id": "p",
        "progressor.task_type": "call",
        "progressor.call": "pay",
    }
    sends = {"messaging.operation.name": "call", "messaging.operation.type": "send"}
    runs = {"messaging.operation.name": "process", "messaging.operation.type": "process"}
    ended = {
        "progressor.attempt": 1,
        "progressor.outcome": "succeeded",
        "progressor.disposition": "resume",
    }
    assert call.attributes == common | sends
    assert process.attributes == common | runs | ended


async def test_a_start_and_a_notice_begin_traces_that_link_to_them(run: Run, dsn: str) -> None:
    """They are sent, and nobody waits for their steps."""
    worker = await run("worker", dsn)
    await worker.says("ready")
    ours, _ = await asked(run, dsn, "start, notify block")
    async with Client(dsn) as client:
        await until(lambda: client.trace(NS, "p"), lambda tasks: tasks[-1].status.is_final)
    theirs = await worker.end()
    sent = [span for span in ours if span.name == f"send {NS}"]
    assert [span.kind for span in sent] == ["PRODUCER", "PRODUCER"]
    processes = [named(theirs, f"process {NS}/{name}") for name in ("init", "block")]
    assert [(span.parent, span.links) for span in processes] == [(None, [each.place]) for each in sent]
    assert not {span.trace_id for span in theirs} & {span.trace_id for span in ours}


async def test_a_timer_and_a_message_begin_traces_that_link_to_their_step(run: Run, dsn: str) -> None:
    """The timer to the step that set it, the targets of its messages to the step of the timer."""
    worker = await run("worker", dsn)
    await worker.says("ready")
    await asked(run, dsn, "start, call arm")
    async with Client(dsn) as client:
        await until(lambda: client.trace(OTHER, "other"), lambda tasks: len(tasks) == 2)
        await until(lambda: client.trace(OTHER, "other"), lambda tasks: tasks[-1].status.is_final)
        timers = [each for each in await client.trace(NS, "p") if each.task_type is TaskType.TIMEOUT]
    theirs = await worker.end()
    arm, fire = named(theirs, f"process {NS}/arm"), named(theirs, f"process {NS}/timeout")
    assert (fire.parent, fire.links) == (None, [arm.place])
    assert [each.trace_id for each in timers] == [arm.trace_id]
    assert fire.trace_id != arm.trace_id
    for name in ("init", "told"):
        step = named(theirs, f"process {OTHER}/{name}")
        assert (step.parent, step.links) == (None, [fire.place])


async def test_a_schedule_begins_traces(run: Run, dsn: str) -> None:
    """Its step has a span without a link, and what it sends links to that."""
    worker = await run("worker", dsn)
    await worker.says("ready")
    async with Client(dsn) as client:
        await client.call(trigger, f"{OTHER}/yearly")
        await until(lambda: client.search(namespace=OTHER), lambda page: bool(page.items))
        await until(lambda: client.trace(OTHER, "of-the-schedule"), lambda tasks: tasks[0].status.is_final)
    theirs = await worker.end()
    (init,) = [span for span in theirs if span.name == f"process {OTHER}/init"]
    (link,) = init.links
    (step,) = [span for span in theirs if span.place == link]
    assert step.parent is None
    assert step.attributes["messaging.destination.name"] == "progressor.schedules"


async def test_a_step_after_a_lost_worker_links_to_its_call(run: Run, dsn: str) -> None:
    """The lost attempt has no span, the second one is a trace of its own; the handler finds the context."""
    victim = await run("victim", dsn)
    await victim.says("ready")
    client = await run("ask", dsn, "start, call hold")
    await victim.says("begun")
    victim.process.kill()
    heir = await run("heir", dsn)
    ours, theirs = await client.end(), await heir.end()
    call, process = named(ours, f"call {NS}/hold"), named(theirs, f"process {NS}/hold")
    assert (process.parent, process.links) == (None, [call.place])
    assert process.attributes["progressor.attempt"] == 2
    started, found = client.answers
    assert (started, found[:-2]) == (None, f"00-{call.place}-")


async def test_errors_are_types_and_refusals_are_none(run: Run, dsn: str) -> None:
    """No span has the text of an error or an argument."""
    worker = await run("worker", dsn)
    await worker.says("ready")
    ours, answers = await asked(run, dsn, "start, call refuse, call nothing, call fail, call block")
    theirs = await worker.end()
    assert answers == [None, "Rejected", "InvalidRequest", "HandlerFailed", "ProcessBroken"]
    errors = {span.name: (span.status, span.attributes.get("error.type")) for span in ours if span.parent}
    assert errors == {
        f"send {NS}": ("UNSET", None),
        f"call {NS}/refuse": ("UNSET", None),
        f"call {NS}/nothing": ("ERROR", "InvalidRequest"),
        f"call {NS}/fail": ("ERROR", "HandlerFailed"),
        f"call {NS}/block": ("ERROR", "ProcessBroken"),
    }
    assert named(ours, f"call {NS}/refuse").attributes["progressor.outcome"] == "rejected"
    fail, refuse = named(theirs, f"process {NS}/fail"), named(theirs, f"process {NS}/refuse")
    assert (fail.status, fail.attributes["error.type"]) == ("ERROR", "ValueError")
    assert (fail.attributes["progressor.outcome"], fail.attributes["progressor.disposition"]) == (
        "failed",
        "break",
    )
    assert (refuse.status, refuse.attributes["progressor.outcome"]) == ("UNSET", "rejected")
    assert SECRET not in str(ours + theirs)
    assert "a bug" not in str(ours + theirs)
    assert {(span.description, span.events) for span in (*ours, *theirs)} == {(None, 0)}


async def test_with_the_api_between_it_is_one_trace_too(run: Run, dsn: str) -> None:
    """Of the caller's span, the `call` of the API's client, and the worker's `process`."""
    worker, api = await run("worker", dsn), await run("api", dsn)
    await worker.says("ready")
    url = await api.says("url")
    ours, _ = await asked(run, url, "start, call pay, notify block", role="http")
    async with Client(dsn) as client:
        await until(lambda: client.trace(NS, "p"), lambda tasks: tasks[-1].status.is_final)
    between, theirs = await api.end(), await worker.end()
    call, process = named(between, f"call {NS}/pay"), named(theirs, f"process {NS}/pay")
    (caller,) = [span for span in ours if span.place == call.parent]
    assert [span.name for span in ours] == ["checkout"] * 3
    assert {span.trace_id for span in (call, process)} == {caller.trace_id}
    assert (process.parent, call.kind) == (call.place, "CLIENT")
    sent = [span for span in between if span.name == f"send {NS}"]
    assert [span.parent for span in sent] == [ours[0].place, ours[2].place]
    assert named(theirs, f"process {NS}/block").links == [sent[1].place]


async def test_an_sdk_that_raises_fails_nothing(
    run: Run, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are answered and steps are saved; an outage is logged, in a line or two."""
    monkeypatch.setenv("BROKEN_SPANS", "yes")
    worker = await run("worker", dsn)
    await worker.says("ready")
    client = await run("ask", dsn, "start, call arm, call refuse, notify arm, call arm")
    await client.end()
    await worker.end()
    assert client.answers == [None, None, "Rejected", None, None]
    for each in (client, worker):
        told = [line for line in each.heard if "spans cannot be made" in line]
        assert len(told) in {1, 2}
        assert all("OSError: the disk is full" in line for line in told)


@pytest.mark.parametrize("uses", ["", "import opentelemetry.trace"], ids=["absent", "without an SDK"])
def test_nothing_is_imported_where_no_app_has_an_sdk(dsn: str, uses: str) -> None:
    """A step, its client and its API: OpenTelemetry is installed here, and no module of ours loads it."""
    program = f"""
import asyncio, sys
{uses}
import progressor.http.server.app, progressor.cli.main
from progressor import Engine, Namespace, Process, tracing

namespace = Namespace("{NS}")

@namespace.init
async def begin(process: Process) -> str:
    return process.task.traceparent

async def main():
    async with Engine("{dsn}", [namespace]) as engine:
        with tracing("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"):
            print(await engine.client.start("{NS}", "p"))

before = {{name for name in sys.modules if name.startswith("opentelemetry")}}
asyncio.run(main())
print({{name for name in sys.modules if name.startswith("opentelemetry")}} - before or "nothing")
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    said = ran.stdout.splitlines()
    assert said[0] == "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert said[1] == "nothing" or uses
    assert not any("opentelemetry.sdk" in line for line in said)
