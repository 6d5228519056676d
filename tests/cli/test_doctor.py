"""progressor doctor: what it says, and its exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.support import Tables

Run = Callable[..., Any]


def test_clean(dsn: str, progressor: Run) -> None:
    """Everything holds: status 0, a line for each invariant."""
    done = progressor("doctor", "--database-url", dsn)
    assert done.status == 0
    assert "all 18 invariants hold" in done.out
    assert "BROKEN" not in done.out


def test_findings(dsn: str, tables: Tables, progressor: Run) -> None:
    """Something was found: status 1, and where."""
    tables.execute(
        "INSERT INTO processes (namespace, process_id, status, status_changed_at, created_at) "
        "VALUES ('shop.order', E'a\nb', 'init', now(), now())"
    )
    done = progressor("doctor", "--database-url", dsn)
    assert done.status == 1
    assert "BROKEN  init_comes_first" in done.out
    assert "shop.order/a\\nb: in status init without an init task" in done.out
    assert progressor("doctor", "--database-url", dsn, "--quick").status == 0
    assert progressor("doctor", "--database-url", dsn, "--namespace", "shop.other").status == 0


def test_json(dsn: str, tables: Tables, progressor: Run) -> None:
    """For machines: every invariant with its findings."""
    tables.execute("INSERT INTO running VALUES ('shop.order', 'p1', 7, 'call', 'w', 1, now())")
    done = progressor("doctor", "--database-url", dsn, "--json")
    assert done.status == 1
    report = json.loads(done.out)
    assert not report["clean"]
    (found,) = [each for each in report["invariants"] if each["findings"]]
    assert found["name"] == "running_has_its_task"
    assert found["findings"] == [
        {"namespace": "shop.order", "process_id": "p1", "task_id": 7, "found": "no such process"}
    ]


def test_not_examined(empty_dsn: str, progressor: Run) -> None:
    """No tables: 2; no database: 75; never 1, which says that something was found."""
    done = progressor("doctor", "--database-url", empty_dsn)
    assert done.status == 2
    assert "progressor migrate" in done.err
    assert progressor("doctor", "--database-url", "postgresql://nobody@127.0.0.1:1/x").status == 75
    assert progressor("doctor", "--database-url", empty_dsn, "--slack", "soon").status == 2
