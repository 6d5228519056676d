"""The carrier's HTTP API, as the handlers use it."""

import httpx

from progressor import NonRetryable

from .model import Address


class AddressRefused(NonRetryable):
    """The carrier does not go there: no retry helps, an operator has to look."""


class Carrier:
    """Any error but AddressRefused means that the carrier is out of order, and is tried again."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def book(self, reference: str, address: Address) -> str:
        """Order a label and return its tracking number: the same for the same reference."""
        answer = await self._http.put("/labels", params={"reference": reference}, json=address.model_dump())
        if answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
            raise AddressRefused(answer.json()["detail"])
        answer.raise_for_status()
        tracking: str = answer.json()["tracking"]
        return tracking

    async def void(self, reference: str) -> None:
        """Give the label back, whether it was made or not."""
        answer = await self._http.delete("/labels", params={"reference": reference})
        answer.raise_for_status()
