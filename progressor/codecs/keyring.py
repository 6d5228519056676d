"""The keyring: a codec that encrypts each value for its place, and keeps old keys to read with.

Rule: keys never leave this module: not in a repr, a log, an error or a traceback. An error names a key by
its id, and a value by its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from progressor.codecs import key_texts
from progressor.codecs.codec import ValuePlace
from progressor.codecs.envelope import (
    NONCE,
    Algorithm,
    bound_to,
    check_kid,
    head_of,
    is_sealed,
    opened,
    prefix_of,
)
from progressor.errors import InvalidRequest, KeyMissing, Undecryptable
from progressor.loggers import Logger

try:
    from progressor.codecs.xaes import KEY, Xaes
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "cryptography":
        raise
    raise ImportError("Keyring needs the extra `crypto`: pip install 'progressor-engine[crypto]'") from None

log = Logger("progressor.codecs")

Keys: TypeAlias = Mapping[str, bytes] | Callable[[str], bytes | None]
Plain = Literal["read", "refuse"]


class Keyring:
    """A codec that encrypts with its active key, and decrypts with any of its keys.

    Each value is bound to its namespace, its process and its kind (state, args, context, response, event):
    copied elsewhere, it does not decrypt. `keys` maps key ids to keys of 32 bytes; or it is a function that
    returns the key of an id, None for one that it does not have, and is called once for each key that it
    returns. With `active` None nothing is encrypted yet. `plain="refuse"` does not read values that are not
    encrypted. A client or worker that lacks a key raises KeyMissing; for anything else that does not
    decrypt, Undecryptable.

    Raise InvalidRequest for a key id or a key that cannot be used.
    """

    __slots__ = ("_active", "_ciphers", "_find", "_heads", "_reads_plain", "_writes")

    def __init__(self, active: str | None, keys: Keys, *, plain: Plain = "read") -> None:
        if plain not in get_args(Plain):
            raise InvalidRequest("plain must be 'read' or 'refuse'", field="plain")
        if active is None and plain == "refuse":
            raise InvalidRequest("a keyring that encrypts nothing must read plain values", field="plain")
        self._active = None if active is None else check_kid(active, field="active")
        self._reads_plain = plain == "read"
        self._ciphers: dict[str, Xaes] = {}
        if isinstance(keys, Mapping):
            self._ciphers = {check_kid(kid, field="keys"): _cipher(kid, key) for kid, key in keys.items()}
        elif not callable(keys):
            raise InvalidRequest(
                "keys must be a mapping of key ids to keys, or a function that returns the key of an id",
                field="keys",
            )
        self._find = None if isinstance(keys, Mapping) else keys
        self._writes = None if active is None else self._cipher(active)
        if active is not None and self._writes is None:
            raise InvalidRequest(f"keys must have the active key {active!r}", field="active")
        self._heads = {} if active is None else {each: head_of(active, each) for each in Algorithm}

    @classmethod
    def from_env(cls, variable: str = "PROGRESSOR_KEYS", *, plain: Plain = "read") -> Keyring:
        """Return a keyring of an environment variable: `k2:BASE64,k1:BASE64`, the active key first.

        `plain` in its place: nothing is encrypted yet.

        Raise InvalidRequest, which names the variable and never quotes its value.
        """
        active, keys = key_texts.read(os.environ.get(variable, ""), field=variable)
        return cls(active, keys, plain=plain)

    @classmethod
    def from_file(cls, path: str | Path, *, plain: Plain = "read") -> Keyring:
        """Return a keyring of a file with a line `k2:BASE64` for each key, the active key first.

        Raise InvalidRequest if it is no such file, or if others than its owner and its group may read it.
        """
        active, keys = key_texts.read_file(Path(path))
        return cls(active, keys, plain=plain)

    def __repr__(self) -> str:
        return f"<Keyring active={self._active!r}>"

    def __reduce__(self) -> str:
        raise TypeError("a keyring is not pickled: its keys would be written with it")

    @property
    def active(self) -> str | None:
        """The id of the key that encrypts; None: nothing is encrypted yet."""
        return self._active

    @property
    def active_prefix(self) -> bytes | None:
        """The bytes with which all values of the active key begin; None without one."""
        return None if self._active is None else prefix_of(self._active)

    def seal(self, data: bytes, place: ValuePlace, /) -> bytes:
        """Return the envelope of a value, encrypted with the active key for its place."""
        if self._writes is None:
            return data
        algorithm = Algorithm.of(place)
        head, nonce = self._heads[algorithm], os.urandom(NONCE)
        return head + nonce + self._writes.encrypt(nonce, data, bound_to(head, algorithm, place))

    def unseal(self, data: bytes, place: ValuePlace, /) -> bytes:
        """Return the value of an envelope; raise KeyMissing or Undecryptable."""
        if not is_sealed(data):
            if self._reads_plain:
                return data
            why = "it is not encrypted, and this keyring refuses that"
            raise Undecryptable(*place, detail=why, is_plain=True)
        try:
            envelope = opened(data)
        except ValueError:
            raise Undecryptable(*place, detail="it is no whole envelope") from None
        cipher = self._cipher(envelope.kid)
        if cipher is None:
            raise KeyMissing(*place, kid=envelope.kid)
        bound = bound_to(envelope.head, envelope.algorithm, place)
        value = cipher.decrypt(envelope.nonce, envelope.ciphertext, bound)
        if value is None:
            raise Undecryptable(
                *place,
                detail=f"it was changed, or is a value of another place, or its key {envelope.kid!r} is "
                "another one here",
            )
        return value

    def _cipher(self, kid: str) -> Xaes | None:
        cipher = self._ciphers.get(kid)
        if cipher is None and (key := self._key(kid)) is not None:
            cipher = self._ciphers[kid] = _cipher(kid, key)
        return cipher

    def _key(self, kid: str) -> bytes | None:
        try:
            return None if self._find is None else self._find(kid)
        except LookupError:
            return None
        except Exception as error:  # noqa: BLE001 - a provider may raise anything
            # Its text may hold what it must not. Who needs the key now does without it: the step breaks its
            # process, and is repaired.
            log.warning("key cannot be provided", extra={"key": kid, "cause": type(error).__name__})
            return None


def _cipher(kid: str, key: object) -> Xaes:
    if not isinstance(key, bytes) or len(key) != KEY:
        raise InvalidRequest(f"the key {kid!r} must be {KEY} bytes", field="keys")
    return Xaes(key)
