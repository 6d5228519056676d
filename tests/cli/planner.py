"""The shop and a namespace with schedules. They stand apart, for what declares a schedule takes a step."""

from __future__ import annotations

from progressor import Cron, Each, Namespace, Process
from tests.cli.shop import both

reports = Namespace("shop.report", state=str)
reports.schedule("yearly", Cron("0 0 1 1 *"), start=lambda at: f"report-{at:%Y}", args="sales")
reports.schedule("notes", Cron("0 0 3 1 *"), each=Each("note"))
reports.schedule("flawed", Cron("0 0 2 1 * *", seconds=True), start=lambda at: str(at.year // 0))


@reports.init
async def begin(process: Process[str], args: str) -> None:
    process.state = args


@reports.call
async def note(process: Process[str]) -> None: ...


everything = [*both, reports]
