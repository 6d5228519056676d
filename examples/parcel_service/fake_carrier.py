"""A carrier to try and to test the service with: `uvicorn parcel_service.fake_carrier:web --port 9001`."""

import asyncio

from fastapi import FastAPI, HTTPException

from .model import Address


class FakeCarrier:
    """Labels in memory, a tracking number for each reference; Atlantis it does not serve."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.is_out = False
        self.takes = 0.0  # seconds, for a label
        self.most_at_once = 0
        self._at_once = 0
        self.web = FastAPI(title="A carrier")
        self.web.put("/labels")(self.book)
        self.web.delete("/labels")(self.void)

    async def book(self, reference: str, address: Address) -> dict[str, str]:
        self._answer_if_open()
        if address.city == "Atlantis":
            raise HTTPException(422, f"nobody drives to {address.city}")
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(self.takes)
        self._at_once -= 1
        return {"tracking": self.labels.setdefault(reference, f"T{len(self.labels) + 1}")}

    async def void(self, reference: str) -> None:
        self._answer_if_open()
        self.labels.pop(reference, None)

    def _answer_if_open(self) -> None:
        if self.is_out:
            raise HTTPException(503, "out of order")


web = FakeCarrier().web
