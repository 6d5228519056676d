r"""The envelope of an encrypted value: which key it is of, and what it is bound to.

    b"\x00prg1" | length of the key id (1 byte) | key id (1 to 16 bytes, ASCII)
    | algorithm (1 byte) | nonce (24 bytes) | ciphertext with its tag (16 bytes)

Rule: no JSON begins with a NUL byte, so a plain value is told from an encrypted one by its first bytes.
What stands before the nonce is authenticated with the place of the value, so none of it can be changed.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final, NamedTuple

from progressor.codecs.codec import ANY_PROCESS, ValuePlace
from progressor.errors import InvalidRequest

MAGIC: Final = b"\x00prg1"
MOST_KID: Final = 16
NONCE: Final = 24
HEAD: Final = len(MAGIC) + 1 + MOST_KID
"""So many bytes of a value suffice to find its key id."""
_TAG = 16
_KID = re.compile(rf"[A-Za-z0-9._-]{{1,{MOST_KID}}}")
PLAIN: Final = "plain"
DAMAGED: Final = "damaged"
"""What reports have in the place of a key id: values in plain, and bytes that are no envelope."""


class Algorithm(IntEnum):
    """The algorithms of values: both are XAES-256-GCM, and differ in what a value is bound to."""

    OF_PROCESS = 1
    """Namespace, process id and kind of value."""
    OF_NAMESPACE = 2
    """Namespace and kind of value: args of a bulk, sealed before its processes are known."""

    @classmethod
    def of(cls, place: ValuePlace) -> Algorithm:
        """Return the one for values of a place."""
        return cls.OF_NAMESPACE if place.process_id == ANY_PROCESS else cls.OF_PROCESS


class Envelope(NamedTuple):
    """The parts of an encrypted value; `head` is what stands before the nonce."""

    kid: str
    algorithm: Algorithm
    head: bytes
    nonce: bytes
    ciphertext: bytes


def check_kid(kid: object, *, field: str) -> str:
    """Return a key id, or raise InvalidRequest."""
    if not isinstance(kid, str) or not _KID.fullmatch(kid) or kid in (PLAIN, DAMAGED):
        raise InvalidRequest(
            f"{field} must be a key id: 1 to {MOST_KID} of the characters A-Z a-z 0-9 . _ -, and neither "
            f"{PLAIN} nor {DAMAGED}",
            field=field,
        )
    return kid


def prefix_of(kid: str) -> bytes:
    """Return the bytes with which all values of a key begin."""
    return MAGIC + bytes([len(kid)]) + kid.encode("ascii")


def head_of(kid: str, algorithm: Algorithm) -> bytes:
    """Return what stands before the nonce in the values of a key and an algorithm."""
    return prefix_of(kid) + bytes([algorithm])


def is_sealed(data: bytes) -> bool:
    """Return whether stored bytes are an envelope, and no plain value."""
    return data.startswith(MAGIC)


def kid_of(data: bytes) -> str | None:
    """Return the key id of the first bytes of a stored value; None of a plain value.

    ValueError for bytes that begin as an envelope does, and are none.
    """
    if not is_sealed(data):
        return None
    at = len(MAGIC) + 1
    kid = data[at : at + data[at - 1]].decode("ascii") if len(data) >= at else ""
    if not _KID.fullmatch(kid) or len(kid) != data[at - 1]:
        raise ValueError("no key id")
    return kid


def opened(data: bytes) -> Envelope:
    """Return the parts of an envelope; ValueError if its bytes are none."""
    kid = kid_of(data)
    if kid is None:
        raise ValueError("no envelope")
    at = len(prefix_of(kid))
    nonce = at + 1
    if len(data) < nonce + NONCE + _TAG:
        raise ValueError("too short")
    return Envelope(
        kid,
        Algorithm(data[at]),
        data[:nonce],
        data[nonce : nonce + NONCE],
        data[nonce + NONCE :],
    )


def bound_to(head: bytes, algorithm: Algorithm, place: ValuePlace) -> bytes:
    """Return what is authenticated with a value; different for any two places, as no name has a NUL."""
    process_id = place.process_id if algorithm is Algorithm.OF_PROCESS else ANY_PROCESS
    return b"\0".join((head, place.namespace.encode(), process_id.encode(), place.kind.encode()))
