"""The pictures of the docs: `python -m tests.web.browser.pictures` takes each page of the console anew.

They show the shop of `progressor demo` in the middle of its troubles: what breaks on purpose is not mended.
`--only broken process` takes the pages of these names alone.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from playwright.async_api import Browser, Page

from examples.cdnow.purchases import Customer, read_customers
from examples.cdnow.read_model import make_tables, sales
from examples.cdnow.shop import JAMMED_TILL, NAMESPACE, Buy, Fix, Refund, shop
from examples.cdnow.troubles import asks_too_much_back, meets_jammed_till
from progressor import App, Client, Cron, Engine, HandlerFailed, Namespace, Process, Rejected, acting
from progressor.embedded import EmbeddedPostgres
from progressor.http.server.auth.authenticator import AccessOptions, Authenticator
from progressor.http.server.serve import ApiServer
from progressor.storage import migrations
from progressor.web.app import make_console
from progressor.web.preferences import LIVE, THEME
from progressor.web.session import TOKEN
from tests.acceptance.support import until
from tests.web.browser.conftest import opened

FOLDER = Path(__file__).parents[3] / "docs" / "pictures"
CUSTOMERS, AT_ONCE = 2357, 50
THEMES = ("light", "dark")
HEIGHTS = {1440: 900, 390: 844}
# A page that is longer is cut here.
HIGHEST = 1800
QUALITY = 82

reports: Namespace[int] = Namespace("shop.report", state=int)


@reports.init
async def count(process: Process[int], customers: int) -> None:
    """Note how many customers there are."""
    process.state = customers
    process.emit("counted", customers=customers)


@reports.call
async def send(process: Process[int]) -> None:
    """Send it: nobody wrote that yet."""
    raise ConnectionError("the mail server at mail.shop.example refused the connection")


for name, rule in (("daily", "0 6 * * *"), ("monthly", "0 7 1 * *")):
    every = Cron(rule, tz="Europe/Berlin")
    reports.schedule(name, every, start=lambda at: f"{at:%Y-%m-%d}", args=lambda _: CUSTOMERS)

# Samples of a day, as a scanner would have noted them.
_SAMPLES = """
INSERT INTO progressor.samples (
    namespace_no, sampled_at, broken, waiting, timers, running, steps, slots, age
)
SELECT
    namespace_no, date_trunc('minute', now()) - minute * interval '1 minute',
    greatest(0, 42 - minute),
    greatest(0, 30 * sin(minute / 11.0))::integer + greatest(0, 600 - 20 * abs(minute - 400)),
    greatest(0, 90 - 5 * abs(minute - 410)), (3 + 2 * sin(minute / 9.0))::integer,
    (7000 + 2000 * cos(minute / 230.0) + 2500 * sin(minute / 7.0))::integer + 700 * (minute % 5), 100, '2 s'
FROM progressor.namespaces CROSS JOIN generate_series(0, 1439) AS minute
WHERE name = 'shop.customer'
"""


async def buy_all(client: Client, customer: Customer, places: asyncio.Semaphore) -> None:
    """Have a customer buy until something breaks, as the file and its troubles say."""
    process = client.process(NAMESPACE, f"customer-{customer.number:04}")
    for purchase in customer.purchases:
        till = JAMMED_TILL if meets_jammed_till(purchase) else 1
        asked = Buy(line=purchase.line, day=purchase.day, cds=purchase.cds, cents=purchase.cents, till=till)
        async with places:
            with suppress(HandlerFailed):
                if purchase.number == 1:
                    await process.start(asked, metadata={"run": "demo", "quiet": False})
                else:
                    await process.call("purchase", asked)
                if asks_too_much_back(purchase):
                    with suppress(Rejected):
                        await process.call("refund", Refund(cents=1_000_000))
                continue
        return


async def live(client: Client, dsn: str) -> str:
    """Fill the shop, and mend a part of it; return the token of an operator."""
    places = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as shopping:
        for customer in read_customers(most=CUSTOMERS):
            shopping.create_task(buy_all(client, customer, places))
    await client.start("shop.report", "2026-11-01", CUSTOMERS)
    with suppress(HandlerFailed):
        await client.call("shop.report", "2026-11-01", "send")
    broken = (await client.search(namespace=NAMESPACE, status="error", limit=3)).items
    with acting("anna", reason="the till at the door works again"):
        await client.simple_repair(NAMESPACE, broken[0].process_id)
    with acting("anna", reason="a regular customer"):
        await client.repair(NAMESPACE, broken[1].process_id, Fix(limit=900_00))
        await client.repair_all(NAMESPACE, detail_like="%jammed%", simple=True, rate=0.05)
        await client.pause("shop.report", "until the mail server is back")
    # What the scanner noted when it began shows an empty shop.
    await asyncio.to_thread(_execute, dsn, "DELETE FROM progressor.samples")
    await asyncio.to_thread(_execute, dsn, _SAMPLES)
    _, bearer = await client.tokens.create("anna", scopes=["all"], namespaces=["*"], lifetime=None)
    return bearer.text


def _execute(dsn: str, sql: Any) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql)


async def addresses(client: Client) -> dict[str, str]:
    """The addresses of the pages, by the names of their pictures."""
    broken = (await client.search(namespace=NAMESPACE, status="error", limit=1)).items[0]
    found = (await client.search(namespace=NAMESPACE, limit=200)).items
    busy = max(found, key=lambda each: each.last_event_id)
    return {
        "overview": "",
        "processes": "processes",
        "process": f"processes/{NAMESPACE}/{busy.process_id}",
        "process-broken": f"processes/{NAMESPACE}/{broken.process_id}",
        "broken": "broken",
        "bulk-new": f"bulk/new?namespace={NAMESPACE}&detail_like=%25limit is%25",
        "bulks": "bulk",
        "namespaces": "namespaces",
        "namespace": f"namespaces/{NAMESPACE}",
        "load": "load",
        "workers": "workers",
        "schedules": "schedules",
        "feed": "feed",
        "audit": "audit",
        "system": "system",
        "settings": "settings",
        "sign-in": "sign-in",
    }


async def take(page: Page, path: Path) -> None:
    """Take a picture of a whole page, in the WebP format, which Playwright cannot ask for itself."""
    height = await page.evaluate("document.documentElement.scrollHeight")
    size = page.viewport_size
    assert size is not None
    clip = {"x": 0, "y": 0, "width": size["width"], "height": min(max(height, 200), HIGHEST), "scale": 1}
    session = await page.context.new_cdp_session(page)
    options = {"format": "webp", "quality": QUALITY, "captureBeyondViewport": True, "clip": clip}
    taken = await session.send("Page.captureScreenshot", options)
    await asyncio.to_thread(path.write_bytes, base64.b64decode(taken["data"]))


async def take_all(browser: Browser, root: str, token: str, wanted: dict[str, str]) -> None:
    """Take each page in both themes, on a wide screen and on a narrow one."""
    for theme in THEMES:
        for width, height in HEIGHTS.items():
            window = await browser.new_context(viewport={"width": width, "height": height})
            cookies = {TOKEN: token, THEME: theme, LIVE: "on"}
            await window.add_cookies([{"name": k, "value": v, "url": root} for k, v in cookies.items()])
            page = await window.new_page()
            for name, path in wanted.items():
                await page.goto(root + path)
                await page.wait_for_load_state("load")
                await take(page, FOLDER / f"{name}-{theme}-{width}.webp")
            await window.close()


async def main(only: list[str]) -> None:
    """Fill a database of its own, serve the console on it, and take the pictures."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        dsn = stack.enter_context(EmbeddedPostgres(folder))
        migrations.upgrade(dsn)
        await make_tables(dsn)
        app = App([shop, reports], projections=[sales])
        engine = await stack.enter_async_context(Engine(dsn, app, zombie_interval=timedelta(seconds=5)))
        token = await live(engine.client, dsn)
        await until(engine.client.bulks, lambda found: any(each.repaired for each in found))
        reader = Client(dsn, [shop, reports])
        console = make_console(reader, access=Authenticator(reader.tokens, AccessOptions()))
        server = ApiServer(reader, console, host="127.0.0.1", port=0, what="console")
        await stack.enter_async_context(server)
        found = await addresses(engine.client)
        wanted = {name: path for name, path in found.items() if not only or name in only}
        browser = await stack.enter_async_context(opened())
        await take_all(browser, f"{server.url}/", token, wanted)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="names of pages")
    FOLDER.mkdir(exist_ok=True)
    asyncio.run(main(parser.parse_args().only))
