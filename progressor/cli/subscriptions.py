"""The commands on subscriptions of the feed: subscriptions, and parked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from progressor.cli.options import ACTING, ASKING, AsJson, with_settings
from progressor.cli.output import clock, print_answer
from progressor.cli.question import ask
from progressor.cli.tables import Listing, print_found
from progressor.cli.values import read_moment
from progressor.client.feed.positions import Start, check_start
from progressor.deployment.settings import Settings
from progressor.errors import InvalidRequest
from progressor.storage import KnownSubscription, ParkedEntry
from progressor.texts import short, visible

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the subscription.")]

subscriptions_app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    help="List readers of the feed; move or remove one, or have it park what fails.",
    epilog="progressor subscriptions move ledger beginning",
)
parked_app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    help="List what subscriptions have put aside; have it tried again, or skip it.",
    epilog="progressor parked skip ledger 17 --reason 'a test order'",
)


@subscriptions_app.callback()
@with_settings(ASKING)
def subscriptions(context: typer.Context, *, json: AsJson = False, settings: Settings) -> None:
    """List readers of the feed: how far behind each is, who reads it, what it has parked, what fails."""
    if context.invoked_subcommand is not None:
        return
    found = ask(settings, lambda client: client.subscriptions())
    nothing = "no subscription: `client.subscription`, a Projection or `progressor sink` makes one"
    print_found(found, _view, nothing, machine=json, document=KnownSubscription._asdict)


def _view(found: Sequence[KnownSubscription]) -> Listing:
    listing = Listing("subscription", "readers", "behind", "age", "parked", "state")
    for each in found:
        counts = str(len(each.readers)), f"{each.behind:,}", short(each.age), f"{each.parked:,}"
        listing.add(each.name, *counts, _state(each))
    return listing


def _state(each: KnownSubscription) -> str:
    if each.is_lost:
        return "lost: the feed has not what comes next; move it"
    if each.error is not None:
        return f"fails, attempt {each.attempts}: {each.error}"
    if not each.readers:
        return "nobody reads it"
    return "reads what was stored" if each.is_walking else "ok"


@subscriptions_app.command("park")
@with_settings(ACTING)
def park(name: Name, *, json: AsJson = False, settings: Settings) -> None:
    """Put aside what fails, at its next attempt, so that what comes behind it goes on."""
    many = ask(settings, lambda client: client.park_failing(name))
    done = f"parks what fails in {many} slices of {visible(name)}" if many else "nothing fails there"
    print_answer(many if json else None, done, machine=json)


@subscriptions_app.command("move")
@with_settings(ACTING)
def move(
    name: Name,
    to: Annotated[str, typer.Argument(metavar="TO", help="latest, beginning, a time, or a position.")],
    *,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Go on from another place, with nothing parked; from the beginning a projection is built anew."""
    start = _read_start(to)
    ask(settings, lambda client: client.move_subscription(name, start))
    print_answer(None, f"moved {visible(name)}", machine=json)


def _read_start(text: str) -> Start:
    """Return where to go on; InvalidRequest if that is neither a word, nor a position, nor a time."""
    try:
        return check_start("TO", text)
    except InvalidRequest as wrong:
        try:
            return read_moment(text, "TO") or text
        except typer.BadParameter:
            raise wrong from None


@subscriptions_app.command("remove")
@with_settings(ACTING)
def remove_subscription(name: Name, *, json: AsJson = False, settings: Settings) -> None:
    """Forget a subscription, with how far it has come and what it has parked."""
    ask(settings, lambda client: client.remove_subscription(name))
    print_answer(None, f"removed {visible(name)}", machine=json)


@parked_app.callback()
@with_settings(ASKING)
def parked(
    context: typer.Context,
    *,
    name: Annotated[
        str | None, typer.Option("--subscription", "-s", help="Only what this one has parked.")
    ] = None,
    after: Annotated[int, typer.Option(help="Only what was parked behind this number.")] = 0,
    limit: Annotated[int, typer.Option(help="At most so many, up to 1,000.")] = 100,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """List what subscriptions have put aside, in the order in which they did."""
    if context.invoked_subcommand is not None:
        return
    found = ask(settings, lambda client: client.parked(name, after=after, limit=limit))
    print_found(found, _parked_view, "nothing is parked", machine=json, document=ParkedEntry._asdict)


def _parked_view(found: Sequence[ParkedEntry]) -> Listing:
    listing = Listing("number", "subscription", "process", "event", "parked", "why")
    for each in found:
        process = f"{each.namespace} {each.process_id}"
        why = each.error or "waits behind the one before"
        wanted = f", {each.action} asked for" if each.action else ""
        listing.add(str(each.parked_no), each.name, process, each.what, clock(each.parked_at), why + wanted)
    return listing


@parked_app.command("retry")
@with_settings(ACTING)
def retry(
    name: Name,
    number: Annotated[
        int | None, typer.Argument(metavar="[NUMBER]", help="Of an entry: only its process.")
    ] = None,
    *,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Try what is parked again, in the order of its processes; what fails again stays parked."""
    many = ask(settings, lambda client: client.retry_parked(name, number))
    print_answer(many if json else None, f"{visible(name)} tries {many:,} again", machine=json)


@parked_app.command("skip")
@with_settings(ACTING)
def skip(
    name: Name,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="Of the entry.")],
    *,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Leave an entry out for good, and try what waits behind it."""
    many = ask(settings, lambda client: client.skip_parked(name, number))
    print_answer(many if json else None, f"{visible(name)} skips it, and tries {many - 1:,}", machine=json)
