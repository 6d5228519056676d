"""Operators: browsers of somebody who may do everything, and what the audit says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from progressor.acts import AuditEntry
from tests.web.reading import Browser, Page

if TYPE_CHECKING:
    from tests.web.conftest import World


class Operator(NamedTuple):
    """A browser of somebody who may do everything, by the name that the audit has."""

    world: World
    browser: Browser
    name: str

    async def get(self, path: str) -> Page:
        page = await self.browser.get(path)
        assert page.status == 200, page.said
        return page

    async def send(self, form: Any, button: str | None = None, **fields: str) -> Page:
        """The page behind a form, where the note stands once."""
        page = await self.browser.send(form, button, **fields)
        assert page.status == 200, page.said
        assert page.note is not None
        assert (await self.get(page.url)).note is None
        return page

    async def acts(self) -> list[AuditEntry]:
        """What the console did."""
        return [each for each in (await self.world.client.audit()).entries if each.way == "console"]

    async def only_act(self, verb: str, **stated: Any) -> AuditEntry:
        """The one act of the console, with its actor."""
        (entry,) = await self.acts()
        assert (entry.verb, entry.actor, entry.origin) == (verb, self.name, "127.0.0.1")
        for name, value in stated.items():
            assert getattr(entry, name) == value, name
        return entry

    @classmethod
    async def of(cls, world: World) -> Operator:
        """The bearer of a new token of all scopes."""
        browser = await world.caller("all")
        token = str(browser.http.cookies["progressor_token"])
        return cls(world, browser, f"token {token.split('_')[1]}")
