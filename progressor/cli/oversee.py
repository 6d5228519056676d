"""The commands for whole namespaces and for workers: pause, resume, retire, workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from progressor.cli.options import ACTING, ASKING, AsJson, NamespaceName, with_settings
from progressor.cli.output import clock, print_answer
from progressor.cli.question import ask
from progressor.cli.tables import Listing, print_found
from progressor.deployment.settings import Settings
from progressor.monitoring import KnownWorker

# Namespaces that a row of a worker names.
_SHOWN = 10


@with_settings(ACTING)
def pause(
    namespace: NamespaceName,
    *,
    reason: Annotated[str | None, typer.Option(help="The reason, which status shows.")] = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Begin no more steps of a namespace, on any worker, until it is resumed.

    Steps that run finish. Requests are still accepted, and wait; timers wait too. The pause is kept in the
    database, and outlasts restarts and deploys.
    `progressor pause billing.subscription --reason 'the provider is down'`
    """
    ask(settings, lambda client: client.pause(namespace, reason))
    done = f"paused {namespace}: what runs finishes, all else waits for `progressor resume`"
    print_answer(None, done, machine=json)


@with_settings(ACTING)
def resume(namespace: NamespaceName, *, json: AsJson = False, settings: Settings) -> None:
    """Let a paused namespace go on: its workers are woken for what waits.

    Timers that fell due meanwhile run at once. `progressor resume billing.subscription`
    """
    ask(settings, lambda client: client.resume(namespace))
    print_answer(None, f"resumed {namespace}", machine=json)


@with_settings(ACTING)
def retire(namespace: NamespaceName, *, json: AsJson = False, settings: Settings) -> None:
    """Forget a namespace that nobody serves any more and that has no processes.

    It disappears from status, metrics and health. A namespace that is still in use is refused, and the line
    names what is left. A worker that serves it again makes it known again. `progressor retire billing.old`
    """
    ask(settings, lambda client: client.retire(namespace))
    print_answer(None, f"retired {namespace}", machine=json)


@with_settings(ASKING)
def workers(*, json: AsJson = False, settings: Settings) -> None:
    """List the workers and zombie collectors that live, and those that are dead.

    One whose lease is over is dead, and its tasks are taken from it. It stays in the list for ten leases
    (150 s), and for as long as a task still counts as running on it.
    """
    found = ask(settings, lambda client: client.workers())
    print_found(found, _workers_view, "no worker: `progressor worker APP` is one", machine=json)


def _some(served: Sequence[str]) -> str:
    more = [f"+ {len(served) - _SHOWN:,} more"] if len(served) > _SHOWN else []
    return ", ".join([*served[:_SHOWN], *more])


def _workers_view(found: Sequence[KnownWorker]) -> RenderableType:
    listing = Listing("WORKER", "STATUS", "HOST", "STARTED", "SEEN", "SERVES (FREE SLOTS)")
    for each in found:
        served = [f"{name} ({each.free_slots.get(name, 0)})" for name in each.namespaces]
        listing.add(
            each.worker_id,
            Text("live", style="green") if each.is_live else Text("dead", style="bold red"),
            each.host,
            clock(each.started_at),
            f"{each.silent_for / timedelta(seconds=1):.0f} s ago",
            _some(served) or "nothing: a zombie collector",
        )
    return listing
