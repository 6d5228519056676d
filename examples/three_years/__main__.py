"""Three years of 200 customers: `python -m three_years`, in the folder `examples`.

It uses the PostgreSQL of PROGRESSOR_DATABASE_URL, or starts an embedded one. Exit status 0 means that the
engine and the calculation agree to the cent.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence

from progressor import development_database

from .calculation import life_of
from .check import Report, compare
from .plan import customers
from .years import live

MOST_SHOWN = 20


async def run(dsn: str, count: int, seed: int) -> Report:
    """Live through the years of so many customers and compare them with the calculation."""
    drawn = customers(count, seed)
    years = await live(dsn, drawn, print)
    return compare(years, [life_of(customer) for customer in drawn])


def show(report: Report) -> None:
    """Print a report for people."""
    print(f"\n{'':30}{'engine':>14}{'calculation':>14}")
    for line in report.lines:
        print(line.shown())
    for difference in report.differences[:MOST_SHOWN]:
        print(difference)
    left_out = len(report.differences) - MOST_SHOWN
    if left_out > 0:
        print(f"and {left_out:,} more differences")
    print("\nAll agree, to the cent." if report.agrees else "\nNOT ALL AGREE.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; return its exit status."""
    parser = argparse.ArgumentParser(prog="three_years", description=__doc__)
    parser.add_argument("customers", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    # What fails and breaks here does so on purpose.
    logging.getLogger("progressor").setLevel(logging.CRITICAL)
    with development_database() as dsn:
        report = asyncio.run(run(dsn, asked.customers, asked.seed))
    show(report)
    return 0 if report.agrees else 1


if __name__ == "__main__":
    sys.exit(main())
