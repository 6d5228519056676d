"""pause, resume, retire, workers, status, as people and machines read them."""

from __future__ import annotations

import io
import json
import shlex
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console, RenderableType

from progressor.cli.errors import _view
from progressor.client.failure_groups import grouped
from progressor.monitoring import Failed
from progressor.services.retention_sweeper import RetentionSweeper
from progressor.storage import Storage
from progressor.texts import count, duration
from tests.cli.conftest import Ended, Running
from tests.support import Tables

Ask = Callable[..., Ended]
NS, OTHER = "shop.order", "shop.cart"


def test_pausing_and_resuming(ask: Ask, order: str) -> None:
    """What is asked meanwhile waits, and its caller is told why."""
    paused = ask("pause", NS)
    assert paused.status == 0
    assert paused.out.startswith(f"paused {NS}: ")
    late = Ended(75, "", "")
    while "the task goes on" not in late.err:
        # On a slow machine it is not yet accepted then.
        late = ask("start", NS, order, '{"item": "tea"}', "--timeout", "1", "--idempotency-key", order)
        assert late.status == 75
    assert f"namespace '{NS}' is paused until an operator resumes it" in late.err
    assert ask("resume", NS, "--json") == (0, "null\n", "")
    assert ask("call", NS, order, "pay", '{"amount": 1}').out == "1\n"


def test_a_namespace_in_use_is_not_retired(ask: Ask) -> None:
    """It says what is left, and what lists it."""
    refused = ask("retire", OTHER)
    assert refused.status == 1
    assert "live workers serve it (1); stop them first" in refused.err
    assert "`progressor workers`" in refused.err


def test_nobody_knows_it(ask: Ask) -> None:
    """A misspelt name is refused by each of them."""
    for command in ("pause", "resume", "retire"):
        refused = ask(command, "nobody.knows")
        assert (refused.status, "is not known in this database" in refused.err) == (1, True)


def test_workers(ask: Ask) -> None:
    """Each with what it serves and how many slots are free."""
    (worker,) = [each for each in ask("workers", "--json").json if NS in each["namespaces"]]
    assert worker["is_live"]
    assert worker["free_slots"][NS] > 0
    shown = ask("workers").out
    assert worker["worker_id"] in shown
    assert f"{NS} (" in shown


def test_status(ask: Ask, order: str) -> None:
    """A line for each namespace; what is broken stands out, and machines get all fields."""
    assert ask("start", NS, order, '{"item": "tea"}').status == 0
    (seen,) = ask("status", "--namespace", NS, "--json").json
    assert (seen["name"], seen["paused"], seen["workers"]) == (NS, False, 1)
    assert seen["started"] >= 1
    assert seen["steps"] >= 0
    assert set(seen["calls"]) == {"tasks", "age"}
    shown = ask("status").out
    assert shown.index(OTHER) < shown.index(NS)
    assert "NEXT TIMER" in shown


def test_status_of_a_paused_namespace(ask: Ask) -> None:
    """It is said beside its name."""
    assert ask("pause", OTHER, "--reason", "").status == 2
    ask("pause", OTHER, "--reason", "the provider is down")
    assert f"{OTHER}  paused: the provider is down" in ask("status").out
    ask("pause", OTHER)
    assert f"{OTHER}  paused " in ask("status").out
    ask("resume", OTHER)
    assert "paused" not in ask("status", "-n", OTHER).out


def test_status_of_nobody(ask: Ask) -> None:
    """A misspelt namespace is refused."""
    assert ask("status", "-n", "nobody.knows").status == 1


def test_status_is_shown_again(spawn: Callable[..., Running], shop: str) -> None:
    """Until Ctrl-C: one line of JSON each time."""
    watching = spawn("status", "--watch", "--json", "-n", NS, PROGRESSOR_DATABASE_URL=shop)
    for _ in range(2):
        assert json.loads(watching.wait_for(NS))[0]["name"] == NS
    watching.signal(signal.SIGINT)
    assert watching.end() == 130


def shown_as_text(view: RenderableType) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as text:
        console.print(view, soft_wrap=True)
    return text.get().splitlines()


def test_errors_show_the_last_one_in_full() -> None:
    """What a group leaves out may be what matters: the status that a provider answered with."""
    at = datetime(2040, 1, 1, tzinfo=UTC)
    failed = Failed("shop", "broken", "p1", "timeout dunning", "HTTPError: 'Bad Gateway 502'", at, False)
    lines = [line.strip() for line in shown_as_text(_view(grouped([failed])))]
    assert lines[1:3] == ["HTTPError: '…'", "last: HTTPError: 'Bad Gateway 502'"]
    assert "--handler 'timeout dunning'" in lines[4]


def test_errors(ask: Ask, order: str) -> None:
    """A group with its count, its message, and the command that shows one of it."""
    assert ask("start", NS, order, '{"item": "tea"}').status == 0
    assert ask("call", NS, order, "lose").status == 1
    (group,) = ask("errors", "-n", NS, "--json").json
    assert (group["status"], group["namespace"], group["message"]) == (
        "broken",
        NS,
        "ValueError: the parcel is lost",
    )
    assert group["count"] >= 1
    assert group["show"] == f"progressor trace {NS} {group['process_id']} --last 5"
    shown = ask("errors", "--since", "PT1H").out
    assert f"{group['count']} broken" in shown
    assert group["show"] in shown
    assert ask(*group["show"].split()[1:]).status == 0
    assert f"    {group['repair']}" in shown
    assert "last: " not in shown
    tried = ask(*shlex.split(group["repair"])[1:], "--json").json
    assert tried["processes"] == group["count"]
    assert ask("errors", "--since", "PT0S") == (0, "", "nothing fails\n")
    for command in ("errors", "audit"):
        ahead = ask(command, "--since", "2100-01-01T00:00:00+00:00")
        assert (ahead.status, "must not lie ahead" in ahead.err) == (2, True)
    assert ask("errors", "--since", "-5").status == 2
    for wrong in ("lately", "2026-02-30"):
        refused = ask("errors", "--since", wrong)
        assert (refused.status, "a time in ISO" in refused.err, "90d" in refused.err) == (2, True, True)
    assert ask("errors", "-n", "nobody.knows").status == 1


def test_how_numbers_are_shown() -> None:
    """A count that stopped says so; a duration has the unit that says enough."""
    assert [count(number) for number in (0, 999, 1000, 1001)] == ["0", "999", "1,000", "1,000+"]
    ages = (timedelta(seconds=5), timedelta(minutes=3), timedelta(hours=5), timedelta(days=9))
    assert [duration(age) for age in ages] == ["5 s", "3 min", "5 h", "9 d"]


def test_groups(ask: Ask) -> None:
    """A limit is set, shown and taken back; a namespace without groups says so."""
    assert "no group" in ask("groups", NS).err
    assert ask("set-group-limit", NS, "acme", "3").out == f"group acme of {NS}: limit 3\n"
    shown = ask("groups", NS).out.split()
    assert shown[-4:] == ["acme", "3", "0", "0"]
    (acme,) = ask("groups", NS, "--json").json
    assert (acme["name"], acme["limit"], acme["waiting"]) == ("acme", 3, 0)
    assert ask("set-group-limit", NS, "acme").out == f"group acme of {NS}: the limit of its namespace\n"
    assert ask("groups", NS).out.split()[-4:] == ["acme", "none", "0", "0"]
    assert ask("set-group-limit", NS, "acme", "-1").status == 2
    assert ask("groups", "nobody.knows").status == 1


def test_a_retention_that_cannot_be_read(progressor: Ask, dsn: str, tables: Tables) -> None:
    """It is shown, with what is wrong and what comes of it."""
    tables.set_namespace(NS)
    tables.execute(
        'UPDATE namespaces SET options = options || \'{"retention": {"tasks": "soon"}}\' WHERE name = %s',
        NS,
    )
    shown = progressor("retention", "show", NS, PROGRESSOR_DATABASE_URL=dsn)
    assert "everything is kept" in shown.out
    known = progressor("retention", "show", NS, "--json", PROGRESSOR_DATABASE_URL=dsn).json
    assert "Retention.tasks" in known["fault"]
    assert known["tasks"] is None


@pytest.mark.parametrize("how", [(), ("--json",)], ids=["people", "machines"])
def test_a_walk_into_an_archive_that_nobody_has(
    progressor: Ask, dsn: str, tables: Tables, spawn: Callable[..., Running], how: tuple[str, ...]
) -> None:
    """The command that waits for one says for whom, at once."""
    tables.set_namespace()
    kept = ("retention", "set", NS, "--events", "1", "--archive", "--yes")
    assert progressor(*kept, PROGRESSOR_DATABASE_URL=dsn).status == 0
    waiting = spawn("retention", "run", NS, *how, PROGRESSOR_DATABASE_URL=dsn)
    waiting.wait_for("the walk waits for a zombie collector that has an archive (PROGRESSOR_ARCHIVE)")
    assert waiting.end_by(signal.SIGINT) == 130


def test_retention(ask: Ask, order: str) -> None:
    """Times are estimated, set, shown and taken back; a walk is made while one waits."""
    assert ask("start", NS, order, '{"item": "tea"}').status == 0
    shown = ask("retention", "show", NS).out
    assert "for ever" in shown
    assert "the code of the namespace" in shown
    few = ask("retention", "estimate", NS, "--tasks", "90d", "--events", "1000", "--json").json
    assert few["tasks"] >= 1
    assert (few["old_tasks"], few["old_events"]) == (0, 0)
    assert "would be deleted" in ask("retention", "estimate", NS, "--tasks", "90d").out
    assert ask("retention", "set", NS, "--tasks", "90d").status == 2, "nobody was asked"
    kept = ("--tasks", "90d", "--keys", "26w", "--events", "1000")
    assert ask("retention", "set", NS, *kept, "--archive", "--yes", "--json").json["archive"]
    done = ask("retention", "set", NS, *kept, "--yes", "--json").json
    assert not done["archive"]
    assert (done["is_set"], done["tasks"], done["events_last"]) == (True, 90 * 86_400, 1000)
    assert done["keys"] == 26 * 7 * 86_400
    ran = ask("retention", "run", NS)
    assert ran.status == 0
    assert "0 tasks, 0 events" in ran.out
    assert "an operator" in ran.out
    assert not ask("retention", "unset", NS, "--json").json["is_set"]
    for wrong in (("--tasks", "soon"), ("--tasks", "1h", "--keys", "PT10M"), ("--events", "0")):
        assert ask("retention", "set", NS, *wrong, "--yes").status == 2
    assert ask("retention", "show", "nobody.knows").status == 1


def test_a_walk_is_begun_before_it_is_looked_for(
    progressor: Ask, dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command's own sweeper finds the walk in its first round, and does not sleep before it."""
    tables.set_namespace()
    monkeypatch.setenv("PROGRESSOR_DATABASE_URL", dsn)
    assert progressor("retention", "set", NS, "--tasks", "90d", "--yes").status == 0
    done: list[str] = []
    begin_sweep, run_once = Storage.begin_sweep, RetentionSweeper.run_once

    async def beginning(*args: Any, **fields: Any) -> bool:
        begun = await begin_sweep(*args, **fields)
        done.append("begun")
        return begun

    async def looking(sweeper: RetentionSweeper) -> timedelta | None:
        done.append("looked")
        return await run_once(sweeper)

    monkeypatch.setattr(Storage, "begin_sweep", beginning)
    monkeypatch.setattr(RetentionSweeper, "run_once", looking)
    assert progressor("retention", "run", NS).status == 0
    assert done[:2] == ["begun", "looked"]
