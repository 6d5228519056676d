"""Signatures of Standard Webhooks, https://www.standardwebhooks.com: by HMAC-SHA256, version v1.

Rule: a secret never leaves this module: not in a repr, a log, an error or an attribute.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Final

from progressor.errors import InvalidRequest

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the beginning of all of them
"""The beginning of a secret; base64 of its bytes follows."""

# Bytes, of the specification.
_SHORTEST, _LONGEST = 24, 64
# Secrets; each of them adds a signature to every request.
_MOST_SECRETS = 10


class WebhookSigner:
    """A signer of requests with one secret, or with several of them while a receiver changes to another."""

    __slots__ = ("_macs",)

    def __init__(self, secrets: Iterable[str]) -> None:
        if isinstance(secrets, str):
            raise InvalidRequest("secrets must be a list of texts, not one text", field="secrets")
        self._macs = [
            hmac.new(_key_of(secret, f"secrets.{number}"), digestmod="sha256")
            for number, secret in enumerate(secrets)
        ]
        if not 1 <= len(self._macs) <= _MOST_SECRETS:
            raise InvalidRequest(f"secrets must be 1 to {_MOST_SECRETS}", field="secrets")

    def headers(self, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
        """Return the headers of a request that is sent at so many seconds of Unix time."""
        signed = f"{message_id}.{timestamp}.".encode() + body
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": " ".join(_signature(mac.copy(), signed) for mac in self._macs),
        }

    def __repr__(self) -> str:
        """Show how many secrets there are, and none of them."""
        return f"<WebhookSigner of {len(self._macs)} secrets>"


def _signature(mac: hmac.HMAC, signed: bytes) -> str:
    mac.update(signed)
    return f"v1,{b64encode(mac.digest()).decode()}"


def _key_of(secret: object, field: str) -> bytes:
    rule = f"{field} must be {SECRET_PREFIX} and the base64 of {_SHORTEST} to {_LONGEST} bytes"
    if not isinstance(secret, str) or not secret.startswith(SECRET_PREFIX):
        raise InvalidRequest(rule, field=field)
    text = secret.removeprefix(SECRET_PREFIX)
    try:
        key = b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(rule, field=field) from None
    if not _SHORTEST <= len(key) <= _LONGEST:
        raise InvalidRequest(f"{rule}, not of {len(key)}", field=field)
    return key
