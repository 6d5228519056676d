"""Requests as they are made: checked, in plain JSON, with an idempotency key and a lease."""

from __future__ import annotations

import hashlib
import os
from base64 import urlsafe_b64encode
from typing import Any

from progressor.handlers.codec import encode, json_object
from progressor.inputs import check_namespace, check_text
from progressor.model import Metadata, TaskType, new_lease
from progressor.storage import Request


def request_of(
    task_type: TaskType,
    namespace: str,
    process_id: str,
    args: Any,
    idempotency_key: str | None,
    context: Any,
    name: str | None = None,
    metadata: Metadata | None = None,
) -> Request:
    """Return a checked request, in plain JSON; raise InvalidRequest, which names what is wrong."""
    check_namespace(namespace)
    check_text("process_id", process_id)
    if name is not None or task_type in (TaskType.CALL, TaskType.NOTIFY):
        name = check_text("name", name)
    if idempotency_key is None:
        # 72 random bits are unique in one process; short, because each key stands in an index.
        idempotency_key = urlsafe_b64encode(os.urandom(9)).decode()
    plain = encode(args, field="args")
    return Request(
        namespace=namespace,
        process_id=process_id,
        task_type=task_type,
        idempotency_key=check_text("idempotency_key", idempotency_key),
        # Hash the plain bytes: a codec that encrypts never writes the same bytes twice.
        request_hash=_request_hash(task_type, name, plain),
        lease=new_lease(),
        name=name,
        args=plain,
        context=encode(context, field="context"),
        process_metadata=None if metadata is None else json_object(metadata, field="metadata"),
    )


def _request_hash(task_type: TaskType, name: str | None, args: bytes | None) -> bytes:
    parts = (task_type.value, name or "", "" if args is None else "args")
    head = "\0".join(parts).encode()
    # 12 bytes are enough to tell two requests of one key apart; they are stored with each request.
    return hashlib.sha256(head + b"\0" + (args or b"")).digest()[:12]
