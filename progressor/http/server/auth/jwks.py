"""The keys with which an identity provider signs, fetched from it and kept.

Rule: the provider is asked seldom, however many unknown keys are named by tokens. While it does not answer,
the kept keys hold for a stated time, and no longer.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import jwt
from pydantic_core import from_json

from progressor.http.server.problems import not_now
from progressor.http.wire.problems import UNVERIFIED
from progressor.loggers import Logger

log = Logger("progressor.http")

# Seconds: the age at which keys are fetched again, the age to which they hold if the provider does not
# answer, and the least time between two fetches, even if a token names an unknown key.
FRESH_SECONDS = 300.0
STALE_SECONDS = 3600.0
ASK_AGAIN_SECONDS = 10.0
_TIMEOUT_SECONDS = 5.0
_MOST_BYTES = 1 << 20
_DISCOVERY = "/.well-known/openid-configuration"


class Key(NamedTuple):
    """A public key for signatures: its id, its kind, the algorithm that it is for, if that is stated."""

    key_id: str | None
    kind: str
    algorithm: str | None
    key: Any


class Keys:
    """The signing keys of one issuer, at `url` or at the address that the issuer's description names."""

    def __init__(self, issuer: str, url: str | None) -> None:
        self._issuer = issuer
        self._url = url
        self._http: httpx.AsyncClient | None = None
        self._keys: tuple[Key, ...] = ()
        self._read_at = self._asked_at = float("-inf")
        self._answers = False
        self._asking = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections to the issuer."""
        if self._http is not None:
            await self._http.aclose()

    async def of(self, key_id: object, kind: str, algorithm: str) -> Key | None:
        """Return the key of this id and kind; None if the issuer has none.

        Raise Refusal if that cannot be known, because the issuer does not answer.
        """
        key = self._among(key_id, kind, algorithm)
        # A caller whose key is kept does not wait while another one fetches the keys.
        if key is None or (self._age > FRESH_SECONDS and not self._asking.locked()):
            await self._ask()
            key = self._among(key_id, kind, algorithm)
        # A key that is missing may be among new ones, which an issuer that does not answer has not sent.
        if (not self._answers) if key is None else self._age > STALE_SECONDS:
            # What was shown may hold: its provider, which knows, does not answer.
            raise not_now(UNVERIFIED, "the keys of the token's issuer are out of reach: try again")
        return key

    @property
    def _age(self) -> float:
        return time.monotonic() - self._read_at

    def _among(self, key_id: object, kind: str, algorithm: str) -> Key | None:
        fits = [
            key
            for key in self._keys
            if key.kind == kind and key.key_id == key_id and key.algorithm in (None, algorithm)
        ]
        # A token without a key id holds if exactly one key has none either.
        return fits[0] if len(fits) == 1 else None

    async def _ask(self) -> None:
        """Fetch the keys, once for all callers who wait, unless they were just fetched."""
        async with self._asking:
            if time.monotonic() - self._asked_at < ASK_AGAIN_SECONDS:
                return
            began = time.monotonic()
            try:
                self._keys = await self._fetched()
            except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
                self._answers = False
                log.warning(
                    "keys of the issuer out of reach",
                    extra={"issuer": self._issuer, "cause": f"{type(error).__name__}: {error}"},
                )
            else:
                self._answers, self._read_at = True, began
            self._asked_at = time.monotonic()

    async def _fetched(self) -> tuple[Key, ...]:
        if self._url is None:
            described = await self._json(self._issuer.rstrip("/") + _DISCOVERY)
            if described.get("issuer") != self._issuer:
                raise ValueError("the description is of another issuer")
            url = str(described.get("jwks_uri"))
            if urlsplit(url).scheme != "https" and not is_loopback(urlsplit(self._issuer).hostname or ""):
                raise ValueError("jwks_uri does not begin with https://")
        else:
            url = self._url
        listed = (await self._json(url)).get("keys")
        if not isinstance(listed, list):
            raise ValueError("there are no keys")  # noqa: TRY004 - as whatever else it may have sent
        return tuple(key for each in listed if (key := _key(each)) is not None)

    async def _json(self, url: str) -> Mapping[str, Any]:
        if self._http is None:
            self._http = httpx.AsyncClient(timeout=_TIMEOUT_SECONDS)
        body = b""
        async with asyncio.timeout(_TIMEOUT_SECONDS), self._http.stream("GET", url) as answer:
            answer.raise_for_status()
            if answer.is_redirect:
                raise ValueError("it redirects elsewhere")
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > _MOST_BYTES:
                    raise ValueError("it sends too much")
        value = from_json(body)
        if not isinstance(value, dict):
            raise ValueError("it does not send an object")  # noqa: TRY004 - as whatever else it may have sent
        return value


def _key(described: Any) -> Key | None:
    """Return a public key for signatures; None for any other, which leaves the rest of the set valid."""
    if not isinstance(described, dict) or described.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    if described.get("use", "sig") != "sig":
        return None
    try:
        key = jwt.PyJWK(described).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return Key(described.get("kid"), described["kty"], described.get("alg"), key)


@lru_cache(maxsize=100)
def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, where no other one can ask."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")
