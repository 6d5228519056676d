"""The web application, which holds a client and runs no handler: `uvicorn parcel_service.web:web`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from progressor import (
    Client,
    IdempotencyConflict,
    ProcessBroken,
    ProcessNotFound,
    Rejected,
    ReplyTimeout,
    StorageUnavailable,
)

from .app import app
from .claims import claims, decide
from .model import Address, Cents, ClaimStatus, Decision, Order, Parcel, Scan
from .parcels import cancel, order, parcels, scanned


class Wish(BaseModel):
    """The body of an order."""

    address: Address
    value: Cents


class CarrierScan(Scan):
    """The body of the carrier's webhook."""

    scan_id: str
    tracking: str


@asynccontextmanager
async def connected(web: FastAPI) -> AsyncIterator[None]:
    async with Client(os.environ["PROGRESSOR_DATABASE_URL"], app) as client:
        web.state.client = client
        yield


def the_client(request: Request) -> Client:
    client: Client = request.app.state.client
    return client


Asking = Annotated[Client, Depends(the_client)]
Key = Annotated[str, Header(alias="Idempotency-Key")]
web = FastAPI(title="Parcels", lifespan=connected)


@web.put("/shops/{shop}/parcels/{number}", status_code=202)
async def send_parcel(shop: str, number: str, wish: Wish, client: Asking) -> None:
    """Order a parcel. Its number is the key: sent twice, it is ordered once."""
    args = Order(shop=shop, address=wish.address, value=wish.value)
    await client.start(order, f"{shop}/{number}", args, idempotency_key="order", timeout=5)


@web.get("/shops/{shop}/parcels/{number}")
async def show(shop: str, number: str, client: Asking) -> Parcel:
    return (await client.process(parcels, f"{shop}/{number}").get(range=None)).state


@web.delete("/shops/{shop}/parcels/{number}", status_code=202)
async def cancel_parcel(shop: str, number: str, client: Asking) -> None:
    await client.call(cancel, f"{shop}/{number}", idempotency_key="cancel", timeout=5)


@web.post("/carrier/scans", status_code=202)
async def take_scan(scan: CarrierScan, client: Asking) -> None:
    """Take a scan, which the carrier sends until it gets a 2xx: the id of the scan is the key."""
    found = await client.search(namespace=parcels.name, metadata={"tracking": scan.tracking}, limit=1)
    if not found.items:
        raise HTTPException(404, f"no parcel {scan.tracking}")
    args = Scan(code=scan.code, place=scan.place)
    await client.notify(scanned, found.items[0].process_id, args, idempotency_key=scan.scan_id)


@web.get("/claims")
async def waiting_claims(client: Asking) -> list[str]:
    """List the claims that wait for a clerk."""
    waiting = {"status": ClaimStatus.WAITING.value}
    page = await client.search(namespace=claims.name, metadata=waiting, limit=100)
    return [claim.process_id for claim in page.items]


@web.post("/claims/{shop}/{number}/decision")
async def decide_claim(shop: str, number: str, decision: Decision, key: Key, client: Asking) -> None:
    await client.call(decide, f"{shop}/{number}", decision, idempotency_key=key, timeout=5)


@web.exception_handler(Rejected)
async def rejected(_: Request, error: Rejected) -> JSONResponse:
    return JSONResponse({"detail": error.reason, **error.details}, 409)


@web.exception_handler(IdempotencyConflict)
async def conflict(_: Request, error: IdempotencyConflict) -> JSONResponse:
    return JSONResponse({"detail": f"{error.process_id} has this key for another request"}, 409)


@web.exception_handler(ProcessNotFound)
async def not_found(_: Request, error: ProcessNotFound) -> JSONResponse:
    return JSONResponse({"detail": f"no {error.process_id}"}, 404)


@web.exception_handler(ProcessBroken)
@web.exception_handler(ReplyTimeout)
@web.exception_handler(StorageUnavailable)
async def later(_: Request, _error: Exception) -> JSONResponse:
    """Ask for a repetition, which every key allows. A broken parcel waits for its repair."""
    return JSONResponse({"detail": "ask again later"}, 503, {"Retry-After": "60"})
