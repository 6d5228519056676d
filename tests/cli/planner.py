"""The shop and a namespace with schedules. They stand apart, for what declares a schedule takes a step."""

from __future__ import annotations

from progressor import Cron, Namespace, Process
from tests.cli.shop import both

reports = Namespace("shop.report", state=str)
reports.schedule("yearly", Cron("0 0 1 1 *"), start=lambda at: f"report-{at:%Y}", args="sales")
reports.schedule("flawed", Cron("0 0 2 1 * *", seconds=True), start=lambda at: str(at.year // 0))


@reports.init
async def begin(process: Process[str], args: str) -> None:
    process.state = args


everything = [*both, reports]
