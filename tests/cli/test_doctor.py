"""progressor doctor: what it says, and its exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.support import NS, Tables

Run = Callable[..., Any]


def test_clean(dsn: str, progressor: Run) -> None:
    """Everything holds: status 0, a line for each invariant."""
    done = progressor("doctor", "--database-url", dsn)
    assert done.status == 0
    assert "all 33 invariants hold" in done.out
    assert "BROKEN" not in done.out


def test_findings(dsn: str, tables: Tables, progressor: Run) -> None:
    """Something was found: status 1, and where."""
    tables.set_namespace(NS)
    tables.execute(
        "INSERT INTO processes (namespace_no, process_id, status, status_changed_at, created_at) "
        "SELECT namespace_no, E'a\nb', 'init', now(), now() FROM namespaces"
    )
    done = progressor("doctor", "--database-url", dsn)
    assert done.status == 1
    assert "BROKEN  init_comes_first" in done.out
    assert "shop.order/a\\nb: in status init without an init task" in done.out
    assert progressor("doctor", "--database-url", dsn, "--quick").status == 0
    done = progressor("doctor", "--database-url", dsn, "--namespace", "shop.other")
    assert (done.status, done.out) == (2, "")
    assert "namespace 'shop.other' is not known in this database (did you mean 'shop.order'?)" in done.err
    tables.set_namespace("shop.other")
    assert progressor("doctor", "--database-url", dsn, "--namespace", "shop.other").status == 0


def test_findings_without_a_name(dsn: str, tables: Tables, progressor: Run) -> None:
    """What is known of the place is said."""
    tables.execute(
        "INSERT INTO processes (namespace_no, process_id, status, status_changed_at, created_at) "
        "VALUES (4711, 'p1', 'running', now(), now())"
    )
    tables.execute("INSERT INTO events VALUES (4712, 1, 7, now(), '{}', '')")
    tables.execute("INSERT INTO running VALUES (4712, 1, 7, 1, now(), 'call')")
    tables.execute("DROP INDEX schedule_one_timer")
    out = progressor("doctor", "--database-url", dsn).out
    assert "        ?/p1: process 1 is of namespace 4711, which is not there" in out
    assert "        1 events from 1 to 1, and there is no process 4712" in out
    assert "        task 7: there is no process 4712" in out
    assert "        key schedule_one_timer is missing" in out


def test_json(dsn: str, tables: Tables, progressor: Run) -> None:
    """For machines: every invariant with its findings."""
    tables.execute("SELECT setval('processes_process_no_seq', 17)")
    tables.execute("INSERT INTO removed_processes VALUES (17, now(), %s, 'p1')", NS)
    tables.execute("INSERT INTO running VALUES (17, 1, 7, 1, now(), 'call')")
    done = progressor("doctor", "--database-url", dsn, "--json")
    assert done.status == 1
    report = json.loads(done.out)
    assert not report["clean"]
    (found,) = [each for each in report["invariants"] if each["findings"]]
    assert found["name"] == "running_has_its_task"
    assert found["findings"] == [
        {"namespace": NS, "process_id": "p1", "task_id": 7, "found": "the process is removed"}
    ]


def test_not_examined(empty_dsn: str, progressor: Run) -> None:
    """No tables: 2; no database: 75; never 1, which says that something was found."""
    done = progressor("doctor", "--database-url", empty_dsn)
    assert done.status == 2
    assert "progressor migrate" in done.err
    assert progressor("doctor", "--database-url", "postgresql://nobody@127.0.0.1:1/x").status == 75
    assert progressor("doctor", "--database-url", empty_dsn, "--slack", "soon").status == 2


def test_polls_are_warned_of(dsn: str, progressor: Run) -> None:
    """Signals that are off are no fault of the tables: a line that says what to set, and status 0."""
    done = progressor("doctor", "--database-url", dsn, PROGRESSOR_SIGNALS="false")
    assert done.status == 0
    (line,) = [json.loads(each) for each in done.err.splitlines()]
    assert (line["level"], line["message"]) == ("warning", "signals are off, answers wait for polls")
    assert "PROGRESSOR_LISTEN_DATABASE_URL" in line["instead"]
    assert progressor("doctor", "--database-url", dsn).err == ""
