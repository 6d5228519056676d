"""Codecs as users write them, and the place of a value, which some of them bind it to.

Rule: one protocol is used inside, that of codecs with a place. A codec without one is adapted to it, once.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol, runtime_checkable

from progressor.errors import InvalidRequest

ValueKind = Literal["state", "args", "context", "response", "event"]
"""The kinds of values that a codec sees."""

ANY_PROCESS: Final = ""
"""The id in the place of a value that is sealed before its process is known: args of a bulk."""


class Owner(NamedTuple):
    """The name of the process that a value belongs to."""

    namespace: str
    process_id: str


class Owning(Protocol):
    """A value with the name of a process: a task, a snapshot, a request, a message, an Owner."""

    @property
    def namespace(self) -> str: ...
    @property
    def process_id(self) -> str: ...


class ValuePlace(NamedTuple):
    """The place of a stored value: its process, and the kind of value that it is.

    `process_id` is empty for the args of a bulk, which become those of many processes of the namespace.
    """

    namespace: str
    process_id: str
    kind: ValueKind


@runtime_checkable
class Codec(Protocol):
    """A codec between the JSON and the tables, for example to compress.

    It sees state, args, responses, contexts and event payloads, but never metadata, which is searched.
    Workers and clients of a namespace must use the same one; `decode` must read all that `encode` ever
    wrote. If `decode` raises on a request, its caller gets InvalidRequest.
    """

    def encode(self, data: bytes, /) -> bytes:
        """Return the bytes to store for some JSON; anything but bytes is a TypeError."""
        ...

    def decode(self, data: bytes, /) -> bytes:
        """Return the JSON of stored bytes; anything but bytes is a TypeError."""
        ...


@runtime_checkable
class PlacedCodec(Protocol):
    """A codec that is given the place of each value, for example to bind what it encrypts to it.

    `Keyring` is one. As for a Codec, `unseal` must read all that `seal` ever wrote. A value of an empty
    process id is read in the place of any process of its namespace. An `unseal` that raises Undecryptable
    breaks the process of the step that needs the value; any other error counts as that of a Codec.
    """

    def seal(self, data: bytes, place: ValuePlace, /) -> bytes:
        """Return the bytes to store for some JSON; anything but bytes is a TypeError."""
        ...

    def unseal(self, data: bytes, place: ValuePlace, /) -> bytes:
        """Return the JSON of stored bytes; anything but bytes is a TypeError."""
        ...


@runtime_checkable
class RotatingCodec(PlacedCodec, Protocol):
    """A codec whose values begin with bytes that change with its active key: `reencode` goes by them."""

    @property
    def active_prefix(self) -> bytes | None:
        """The bytes with which all values begin that `seal` writes, and no others; None without any."""
        ...


class _Unplaced:
    """A codec with two methods, which needs no place."""

    __slots__ = ("_codec",)

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def seal(self, data: bytes, _place: ValuePlace, /) -> bytes:
        return _bytes(self._codec.encode(data), "encode")

    def unseal(self, data: bytes, _place: ValuePlace, /) -> bytes:
        return _bytes(self._codec.decode(data), "decode")


class _Placed:
    """A codec that takes places, whose results are checked."""

    __slots__ = ("_codec",)

    def __init__(self, codec: PlacedCodec) -> None:
        self._codec = codec

    def seal(self, data: bytes, place: ValuePlace, /) -> bytes:
        return _bytes(self._codec.seal(data, place), "seal")

    def unseal(self, data: bytes, place: ValuePlace, /) -> bytes:
        return _bytes(self._codec.unseal(data, place), "unseal")


def placed(codec: Codec | PlacedCodec) -> PlacedCodec:
    """Return a user's codec as one that takes places; InvalidRequest if it is none."""
    match codec:
        case PlacedCodec():
            return _Placed(codec)
        case Codec():
            return _Unplaced(codec)
    raise InvalidRequest(
        "codec must have encode and decode methods, or seal and unseal methods, which take a place",
        field="codec",
    )


def _bytes(data: object, method: str) -> bytes:
    if not isinstance(data, bytes):
        raise TypeError(f"codec.{method} must return bytes, not {type(data).__name__}")
    return data
