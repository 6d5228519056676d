"""The application of the workers: `progressor worker billing_service.app:app`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from progressor import App

from .outside import HttpMailer, HttpPayments
from .subscriptions import subscriptions


@asynccontextmanager
async def lifespan(_: App) -> AsyncIterator[dict[str, Any]]:
    async with (
        httpx.AsyncClient(base_url=os.environ.get("PAYMENTS_URL", "http://localhost:9001")) as payments,
        httpx.AsyncClient(base_url=os.environ.get("MAILER_URL", "http://localhost:9002")) as mailer,
    ):
        yield {"payments": HttpPayments(payments), "mailer": HttpMailer(mailer)}


app = App([subscriptions], lifespan=lifespan)
