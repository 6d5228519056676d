"""The form that starts a process, made of the schema that its namespace publishes.

Rule: what it states is checked as the API does. It has a key of its own: sent twice, it starts one process.
"""

from __future__ import annotations

from starlette.responses import Response

from progressor.errors import HandlerFailed, NamespaceNotFound, ProgressorError, ReplyTimeout
from progressor.http.server.auth.scopes import require
from progressor.http.server.problems import Refusal
from progressor.model import TaskType
from progressor.rights import Scope
from progressor.web.forms import ArgsForm, start_form
from progressor.web.page import PageRequest, Pages
from progressor.web.pages.changes import PATIENCE, answered
from progressor.web.pages.namespaces.namespace import offered_namespaces
from progressor.web.pages.processes import metadata_of
from progressor.web.problem import PageProblem
from progressor.web.rendering import process_path

pages = Pages()


@pages.get("/processes/new", scope=Scope.PROCESSES_START)
async def new_process(request: PageRequest) -> Response:
    """Return the form that starts a process of a namespace; without one, the field that asks for it."""
    namespace, problem = request.query_params.get("namespace", "").strip(), None
    try:
        form = await _form(request, namespace)
    except (Refusal, ProgressorError) as error:
        form, problem = None, request.problem_of_filter(error)
    return await _start_page(request, namespace, form, problem)


async def _form(request: PageRequest, namespace: str) -> ArgsForm | None:
    if not namespace:
        return None
    require(request.caller, Scope.PROCESSES_START, namespace)
    return start_form(await request.server.publications.of(namespace))


async def _start_page(
    request: PageRequest, namespace: str, form: ArgsForm | None, problem: PageProblem | None
) -> Response:
    return request.page(
        "start.html",
        "Start a process",
        problem=problem,
        namespace=namespace,
        form=form,
        offered=await offered_namespaces(request, Scope.PROCESSES_START),
    )


@pages.post("/processes/new", scope=Scope.PROCESSES_START)
async def start(request: PageRequest) -> Response:
    """Start the process that a form describes, and lead to its page."""
    namespace = request.fields.get("namespace", "").strip()
    # Before anything is said of the namespace.
    require(request.caller, Scope.PROCESSES_START, namespace)
    try:
        form = start_form(await request.server.publications.of(namespace))
    except NamespaceNotFound as error:
        return await _start_page(request, namespace, None, request.problem_of_filter(error))
    try:
        return await _started(request, namespace, form)
    except (Refusal, ProgressorError) as error:
        return await _start_page(request, namespace, form, request.problem_of(error))


async def _started(request: PageRequest, namespace: str, form: ArgsForm) -> Response:
    fields, server = request.fields, request.server
    process_id = fields.get("process_id", "").strip()
    args, metadata = form.read(fields), metadata_of(fields.get("metadata", "").strip())
    await server.publications.check(namespace, TaskType.INIT, None, args)
    path, key = process_path("", namespace, process_id), fields.get("key") or None
    try:
        answer = await server.client.start(
            namespace, process_id, args, metadata=metadata, idempotency_key=key, timeout=PATIENCE
        )
    except ReplyTimeout:
        return request.to(path, "The start was accepted, and is under way.")
    except HandlerFailed:
        # It is there, and its page says why it broke to those who may read it.
        return request.to(path, "It was started, and its init broke it.")
    return request.to(path, answered("its init", answer))
