"""The commands for groups of processes: groups, set-group-limit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from progressor.cli.options import ACTING, ASKING, AsJson, NamespaceName, with_settings
from progressor.cli.output import print_answer
from progressor.cli.question import ask
from progressor.cli.tables import Listing, print_found
from progressor.deployment.settings import Settings
from progressor.monitoring import MOST_COUNTED, KnownGroup


@with_settings(ASKING)
def groups(
    namespace: NamespaceName,
    *,
    after: Annotated[str | None, typer.Option(help="List those whose names come after this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, at most.")] = 100,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """List the groups of a namespace: their limits, and how many tasks run and wait for room.

    `progressor groups billing.subscription`
    """
    found = ask(settings, lambda client: client.groups(namespace, after=after, limit=limit))
    nothing = "no group: `Namespace(group=…)` puts processes into groups as they start"
    print_found(found, _groups_view, nothing, machine=json)


@with_settings(ACTING)
def set_group_limit(
    namespace: NamespaceName,
    group: Annotated[str, typer.Argument(metavar="GROUP")],
    limit: Annotated[
        int | None, typer.Argument(metavar="[LIMIT]", help="Without it: that of the namespace.")
    ] = None,
    *,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Let at most so many steps of a group run at once, over all workers, until it is set again.

    A higher limit holds at once; after a lower one, what runs ends. `progressor set-group-limit
    billing.subscription acme 10`
    """
    ask(settings, lambda client: client.set_group_limit(namespace, group, limit))
    done = "the limit of its namespace" if limit is None else f"limit {limit}"
    print_answer(None, f"group {group} of {namespace}: {done}", machine=json)


def _groups_view(found: Sequence[KnownGroup]) -> RenderableType:
    listing = Listing("GROUP", "LIMIT", "RUNNING", "WAITING", "OLDEST")
    for each in found:
        limit = "none" if each.limit is None else str(each.limit)
        waiting = f"{MOST_COUNTED:,}+" if each.waiting > MOST_COUNTED else str(each.waiting)
        listing.add(
            each.name,
            Text(limit, style="bold" if each.has_own_limit else ""),
            str(each.running),
            waiting,
            f"{each.age / timedelta(seconds=1):.0f} s" if each.waiting else "",
        )
    return listing
