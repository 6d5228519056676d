"""The services outside: who takes the money, and who sends the letters.

Each request carries a key, so that one that is repeated after a crash is carried out once.
"""

from typing import Any, Protocol

import httpx


class Payments(Protocol):
    """The payment provider. It answers a charge later, with a request to our webhook."""

    async def charge(self, key: str, subscription: str, amount: int) -> None: ...

    async def refund(self, key: str, charge: str, amount: int) -> None: ...


class Mailer(Protocol):
    """The mail service."""

    async def send(self, key: str, to: str, letter: str, facts: dict[str, Any]) -> None: ...


class HttpPayments:
    """The payment provider's API."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def charge(self, key: str, subscription: str, amount: int) -> None:
        await _post(self._http, "/charges", key, {"subscription": subscription, "amount": amount})

    async def refund(self, key: str, charge: str, amount: int) -> None:
        await _post(self._http, "/refunds", key, {"charge": charge, "amount": amount})


class HttpMailer:
    """The mail service's API."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def send(self, key: str, to: str, letter: str, facts: dict[str, Any]) -> None:
        await _post(self._http, "/letters", key, {"to": to, "letter": letter, "facts": facts})


async def _post(http: httpx.AsyncClient, path: str, key: str, body: dict[str, Any]) -> None:
    response = await http.post(path, json=body, headers={"Idempotency-Key": key})
    response.raise_for_status()
