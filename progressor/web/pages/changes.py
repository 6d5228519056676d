"""Forms of a process: call, notify, repair, redo, timers, removal.

Rule: what they state is checked as the API does, where requests are accepted. A form has a key of its own,
drawn with its page: sent twice, it is done once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

from starlette.responses import Response

from progressor.errors import InvalidRequest, ProgressorError, ReplyTimeout
from progressor.http.server.auth.scopes import require
from progressor.http.server.problems import Refusal
from progressor.inputs import RESERVED
from progressor.model import TaskType
from progressor.rights import Scope
from progressor.texts import short
from progressor.web.forms import call_form, repair_form
from progressor.web.page import Endpoint, PageRequest, Pages, number_of
from progressor.web.pages.process import PATH, process_page
from progressor.web.rendering import process_path
from progressor.web.typed import duration_of, moment_of

pages = Pages()

# A page waits for an answer this long; after that it says where the answer will be.
PATIENCE = timedelta(seconds=10)

Change = Callable[..., Awaitable[None]]
"""A method of the client that changes a timer."""


def _on_its_page(endpoint: Callable[..., Awaitable[Response | str]]) -> Endpoint:
    """Return the endpoint so that its note, if it returns one, is shown on the page of the process.

    So is an error, with what was filled in.
    """

    async def form(request: PageRequest, namespace: str, process_id: str) -> Response:
        try:
            done = await endpoint(request, namespace, process_id)
        except (Refusal, ProgressorError) as error:
            return await process_page(request, namespace, process_id, request.problem_of(error))
        return request.to(process_path("", namespace, process_id), done) if isinstance(done, str) else done

    return form


@pages.post(PATH + "/call", scope=Scope.PROCESSES_CALL)
@_on_its_page
async def call(request: PageRequest, namespace: str, process_id: str) -> str:
    """Call a process, or leave a notice in its mailbox; a note shows the answer."""
    form, server = request.fields, request.server
    name = form.get("name", "").strip()
    if not name or name.startswith(RESERVED):
        raise InvalidRequest("name must be that of a call", field="name")
    args = call_form(await server.publications.of(namespace), name).read(form)
    await server.publications.check(namespace, TaskType.CALL, name, args)
    key = form.get("key") or None
    if form.get("how") == "notify":
        await server.client.notify(namespace, process_id, name, args, idempotency_key=key)
        return f"{name} waits in the mailbox."
    try:
        answer = await server.client.call(
            namespace, process_id, name, args, idempotency_key=key, timeout=PATIENCE
        )
    except ReplyTimeout:
        return f"{name} was accepted, and is under way."
    return answered(name, answer)


@pages.post(PATH + "/repair", scope=Scope.PROCESSES_REPAIR)
@_on_its_page
async def repair(request: PageRequest, namespace: str, process_id: str) -> Response | str:
    """Repair a broken process: by its handler, or simply; or show what its handler would do."""
    form, server = request.fields, request.server
    key = form.get("key") or None
    if form.get("how") == "simple":
        await server.client.simple_repair(namespace, process_id, idempotency_key=key)
        return "It goes on as if nothing had broken it."
    args = repair_form(await server.publications.of(namespace)).read(form)
    await server.publications.check(namespace, TaskType.REPAIR, None, args)
    if form.get("how") == "dry_run":
        require(request.caller, Scope.STATE_READ, namespace)
        # Without the form's key, which is the repair's that may follow.
        run = await server.client.dry_run_repair(namespace, process_id, args, timeout=PATIENCE)
        return await process_page(request, namespace, process_id, dry_run=run)
    try:
        answer = await server.client.repair(
            namespace, process_id, args, idempotency_key=key, timeout=PATIENCE
        )
    except ReplyTimeout:
        return "The repair was accepted, and is under way."
    return answered("repair", answer)


@pages.post(PATH + "/redo", scope=Scope.PROCESSES_CALL)
@_on_its_page
async def redo(request: PageRequest, namespace: str, process_id: str) -> str:
    """Run a task that ended again."""
    number = number_of(request.fields.get("task_id", ""), "task_id")
    try:
        answer = await request.server.client.redo(namespace, process_id, number, timeout=PATIENCE)
    except ReplyTimeout:
        return f"Task {number} is run again."
    return answered(f"task {number}, run again,", answer)


@pages.post(PATH + "/timers", scope=Scope.PROCESSES_REPAIR)
@_on_its_page
async def change_timer(request: PageRequest, namespace: str, process_id: str) -> str:
    """Set a timer, fire it now, or cancel it."""
    form, client = request.fields, request.server.client
    of, key = (namespace, process_id, form.get("timer", "")), form.get("key") or None
    match form.get("how"):
        case "set":
            change: Change = partial(client.set_timer, **_when(request))
            note = "The timer is set."
        case "fire":
            change, note = client.fire_timer, "The timer is due now."
        case "unset":
            change, note = client.unset_timer, "The timer is cancelled."
        case _:
            raise InvalidRequest("a timer is set, fired or cancelled", field="how")
    try:
        await change(*of, idempotency_key=key, timeout=PATIENCE)
    except ReplyTimeout:
        return "The change of the timer was accepted, and waits."
    return note


def _when(request: PageRequest) -> dict[str, Any]:
    """Return when a timer is to be due, as a form states it; InvalidRequest if not once."""
    after, at = (request.fields.get(name, "").strip() for name in ("after", "at"))
    if bool(after) == bool(at):
        raise InvalidRequest("state one of the two: after which time it is due, or when", field="after")
    return {"after": duration_of(after, "after"), "at": moment_of(at, "at", request.preferences.zone)}


@pages.post(PATH + "/remove", scope=Scope.PROCESSES_REMOVE)
@_on_its_page
async def remove(request: PageRequest, namespace: str, process_id: str) -> Response:
    """Remove a process, if its id was typed."""
    if request.fields.get("confirm") != process_id:
        raise InvalidRequest("type the id of the process to remove it", field="confirm")
    await request.server.client.remove(namespace, process_id)
    return request.to("processes", f"{namespace}/{process_id} is removed.")


def answered(what: str, answer: Any) -> str:
    """Return the note on a request that was answered."""
    return f"{what} answered: {short(answer, 200)}" if answer is not None else f"{what} is done."
