"""Requests as they are made: checked, in plain JSON, with an idempotency key and a lease."""

from __future__ import annotations

from typing import Any

from progressor.client.asks import RequestOptions
from progressor.errors import InvalidRequest, TaskNotEnded
from progressor.handlers.codec import encode, json_object
from progressor.inputs import (
    RESERVED,
    check_expires,
    check_key,
    check_namespace,
    check_priority,
    check_text,
    new_key,
    new_lease,
    redo_key,
)
from progressor.messages.message import request_hash
from progressor.model import TaskType
from progressor.storage import AnswerRow, Request


def request_of(
    task_type: TaskType,
    namespace: str,
    process_id: str,
    args: Any,
    options: RequestOptions,
    name: str | None = None,
    *,
    reply_to: int | None = None,
    worker_id: int | None = None,
) -> Request:
    """Return a checked request, in plain JSON; raise InvalidRequest, which names what is wrong.

    `reply_to` is this client process, `worker_id` its worker if it has one.
    """
    check_namespace(namespace)
    check_text("process_id", process_id)
    if name is not None or task_type in (TaskType.CALL, TaskType.NOTIFY):
        name = check_text("name", name)
    plain = encode(args, field="args")
    idempotency_key, context, metadata, expires, priority = options
    return Request(
        namespace=namespace,
        process_id=process_id,
        task_type=task_type,
        idempotency_key=new_key() if idempotency_key is None else check_key(idempotency_key),
        request_hash=request_hash(task_type, name, plain),
        lease=new_lease(),
        name=name,
        args=plain,
        context=encode(context, field="context"),
        reply_to=None if task_type is TaskType.NOTIFY else reply_to,
        process_metadata=None if metadata is None else json_object(metadata, field="metadata"),
        worker_id=worker_id,
        expires=None if expires is None else check_expires(expires),
        priority=check_priority(priority),
    )


def redo_request(namespace: str, process_id: str, task: AnswerRow, *, reply_to: int | None) -> Request:
    """Return the request that runs an ended call or notify again, without its values.

    Raise InvalidRequest for any other task, and TaskNotEnded for one that waits or runs.
    """
    name, key = task.name or "", task.ref(namespace).key
    if task.task_type not in (TaskType.CALL, TaskType.NOTIFY) or name.startswith(RESERVED):
        kind = "change of a timer" if name.startswith(RESERVED) else task.task_type.value
        raise InvalidRequest(
            f"task {task.task_id} is no call or notice, but a {kind}: only calls and notices are run again",
            field="task_id",
        )
    if not task.status.is_final:
        raise TaskNotEnded(namespace, process_id, task_id=task.task_id)
    return Request(
        namespace=namespace,
        process_id=process_id,
        task_type=task.task_type,
        idempotency_key=redo_key(task.task_id),
        request_hash=task.request_hash or b"",
        lease=new_lease(),
        name=name,
        reply_to=None if task.task_type is TaskType.NOTIFY else reply_to,
        redoes=key,
    )
