"""The web application, which holds a client and runs no handler: `uvicorn billing_service.web:web`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse

from progressor import (
    Client,
    IdempotencyConflict,
    ProcessAlreadyExists,
    ProcessBroken,
    ProcessNotFound,
    Rejected,
    ReplyTimeout,
)

from .subscriptions import (
    Charged,
    Refund,
    Refused,
    Subscribe,
    cancel,
    charged,
    refund,
    refused,
    subscribe,
    subscriptions,
)


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    async with Client(os.environ["PROGRESSOR_DATABASE_URL"], [subscriptions]) as client:
        web.state.client = client
        yield


def the_client(request: Request) -> Client:
    client: Client = request.app.state.client
    return client


Asking = Annotated[Client, Depends(the_client)]
Key = Annotated[str, Header(alias="Idempotency-Key")]

web = FastAPI(lifespan=lifespan)


@web.put("/subscriptions/{name}")
async def open_subscription(client: Asking, name: str, body: Subscribe, key: Key) -> dict[str, datetime]:
    return {"trial_until": await client.start(subscribe, name, body, idempotency_key=key)}


@web.get("/subscriptions/{name}")
async def show(client: Asking, name: str) -> dict[str, Any]:
    state = (await client.process(subscriptions, name).get()).state
    return state.model_dump(include={"status", "due", "price"})


@web.post("/subscriptions/{name}/refunds")
async def give_back(client: Asking, name: str, body: Refund, key: Key) -> dict[str, int]:
    return {"left": await client.call(refund, name, body, idempotency_key=key)}


@web.delete("/subscriptions/{name}", status_code=204)
async def end_subscription(client: Asking, name: str, key: Key) -> None:
    await client.call(cancel, name, idempotency_key=key)


@web.post("/webhooks/{name}/charged", status_code=204)
async def on_charged(client: Asking, name: str, body: Charged) -> None:
    """The provider repeats this until it gets an answer; the charge's key makes it one call."""
    await client.notify(charged, name, body, idempotency_key=f"{body.key}/charged")


@web.post("/webhooks/{name}/refused", status_code=204)
async def on_refused(client: Asking, name: str, body: Refused) -> None:
    await client.notify(refused, name, body, idempotency_key=f"{body.key}/refused")


@web.exception_handler(Rejected)
async def _rejected(_: Request, error: Rejected) -> JSONResponse:
    return JSONResponse({"detail": error.reason, **error.details}, 409)


@web.exception_handler(ProcessNotFound)
async def _not_found(_: Request, error: ProcessNotFound) -> JSONResponse:
    return JSONResponse({"detail": f"there is no subscription {error.process_id}"}, 404)


@web.exception_handler(ProcessAlreadyExists)
async def _exists(_: Request, error: ProcessAlreadyExists) -> JSONResponse:
    return JSONResponse({"detail": f"there is a subscription {error.process_id} already"}, 409)


@web.exception_handler(IdempotencyConflict)
async def _another(_: Request, __: IdempotencyConflict) -> JSONResponse:
    return JSONResponse({"detail": "this key was used for another request"}, 409)


@web.exception_handler(ProcessBroken)
async def _broken(_: Request, __: ProcessBroken) -> JSONResponse:
    """The provider repeats its webhook, until somebody has repaired the subscription."""
    return JSONResponse({"detail": "the subscription waits for a repair"}, 503, {"Retry-After": "60"})


@web.exception_handler(ReplyTimeout)
async def _late(_: Request, error: ReplyTimeout) -> JSONResponse:
    detail = f"{error.process_id} has not answered yet: ask again with the same key"
    return JSONResponse({"detail": detail}, 503, {"Retry-After": "1"})
