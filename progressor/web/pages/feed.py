"""The feed: its subscriptions, how far each is behind, and what is parked."""

from __future__ import annotations

from starlette.responses import Response

from progressor.rights import Scope
from progressor.web.page import PageRequest, Pages, number_of

pages = Pages()

_PAGE = 100


@pages.get("/feed", scope=Scope.ADMIN)
async def feed(request: PageRequest) -> Response:
    """Return the subscriptions, and what they have put aside."""
    request.require_all("subscriptions are")
    client, after = request.server.client, number_of(request.query_params.get("after", "0"), "after")
    parked = await client.parked(after=after, limit=_PAGE + 1)
    return request.page(
        "feed.html",
        "Feed",
        subscriptions=await client.subscriptions(),
        parked=parked[:_PAGE],
        following=parked[_PAGE - 1].parked_no if len(parked) > _PAGE else None,
    )


@pages.post("/feed/parked", scope=Scope.ADMIN)
async def act_on_parked(request: PageRequest) -> Response:
    """Have parked entries tried again, or leave one out for good."""
    request.require_all("subscriptions are")
    client, form = request.server.client, request.fields
    name, number = form.get("name", ""), number_of(form.get("number", ""), "number")
    if form.get("action") == "skip":
        many = await client.skip_parked(name, number)
        return request.to("feed", f"{many:,} are left out.")
    many = await client.retry_parked(name, number)
    return request.to("feed", f"{many:,} are tried again.")
