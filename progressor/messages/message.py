"""The message, its key and the hash of the request that it becomes.

Rule: once the step of a message is committed, nothing is looked up at its sender, which may be gone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal

from pydantic_core import to_json

from progressor.errors import InvalidRequest
from progressor.inputs import RESERVED, check_key, check_namespace, check_text

_SENT = re.compile(re.escape(f"{RESERVED}sent:") + r"([0-9]{1,19})\.")
MAX_MESSAGES: Final = 100
"""The most messages of one step."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to a process: a notice of a call's `name`, or (kind `start`) the start of the process.

    It is sent when the step that returns it is saved, and delivered after that; it becomes one task of its
    target. `args` is JSON in bytes for a raw handler and for storage, and the decoded value in a test's
    Done. `metadata` is that of a process to be started. Without an `idempotency_key` it gets one of its
    own. `request_hash` is set when the step is saved. Raises InvalidRequest for a name that no target has.
    """

    namespace: str
    process_id: str
    name: str | None = None
    args: Any = None
    kind: Literal["notify", "start"] = field(default="notify", kw_only=True)
    metadata: dict[str, Any] | None = field(default=None, kw_only=True)
    idempotency_key: str | None = field(default=None, kw_only=True)
    request_hash: bytes | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        check_text("process_id", self.process_id)
        match self.kind:
            case "notify":
                check_text("name", self.name)
                if self.metadata is not None:
                    raise InvalidRequest("metadata= belongs to a message that starts", field="metadata")
            case "start":
                if self.name is not None:
                    raise InvalidRequest("a message that starts calls no name", field="name")
            case _:
                raise InvalidRequest("kind must be 'notify' or 'start'", field="kind")
        if self.idempotency_key is not None and self.request_hash is None:
            check_key(self.idempotency_key)

    @property
    def size(self) -> int:
        """The approximate size in bytes of what it carries."""
        return len(self.args or b"") + (len(to_json(self.metadata)) if self.metadata else 0)


def message_key(task_id: int, place: int, lease: int) -> str:
    """Return the key of a message without one, by its step and its place in it.

    The lease of the step is random: a server that was promoted may hand out the task's number again.
    """
    return f"{RESERVED}sent:{task_id}.{place}:{lease:x}"


def sent_by(key: str | None) -> int | None:
    """Return the task in whose step a message was sent, by the key that it got; None for any other key."""
    found = _SENT.match(key or "")
    return int(found[1]) if found else None


def request_hash(task_type: str, name: str | None, args: bytes | None) -> bytes:
    """Return the hash of a request, of its plain bytes: one that encrypts never writes the same twice."""
    head = "\0".join((task_type, name or "", "" if args is None else "args")).encode()
    # 12 bytes are enough to tell two requests of one key apart; they are stored with each request.
    return sha256(head + b"\0" + (args or b"")).digest()[:12]
