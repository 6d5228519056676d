"""The readers that the page shows read what its handlers do."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType
from typing import Any

import pytest

from progressor import Engine
from tests.docs.pages import ROOT, blocks


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The code of the page, as one module."""
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for block in blocks(ROOT / "docs/how-to/follow-events.md", "python"):
        exec(block.code, module.__dict__)
    return module


async def test_the_readers_of_the_page(dsn: str, page: Any) -> None:
    """One follows the feed, one has a durable subscription, and goes on where it was."""
    async with Engine(dsn, [page.accounts]) as engine, asyncio.timeout(30):
        client, totals, ledger = engine.client, {}, []
        await client.start("bank.account", "a")
        for amount in (60, 40):
            await client.call("bank.account", "a", "deposit", amount)
        await page.follow(client, totals, "beginning")
        assert totals == {"a": 100}
        await client.call("bank.account", "a", "deposit", 100)
        await page.keep_ledger(client, ledger)
        assert ledger == [("a", 60), ("a", 40), ("a", 100)]
        await client.call("bank.account", "a", "deposit", 200)
        await page.keep_ledger(client, again := [])
        assert again == [("a", 200)]
