"""export and import: processes leave one database whole and enter another one, or the same one again."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from progressor.archive.records import WholeProcess, write_line
from progressor.archive.wholes import read_wholes
from progressor.client.transfers import whole
from tests.cli.conftest import DEADLINE_SECONDS, NS, Ended, Running, environment, run
from tests.support import check_invariants
from tests.transfers import made, outline

# An import gets no further than a process whose row in `held_up` is locked.
_HELD_UP: LiteralString = """
CREATE TABLE public.held_up (process_id text PRIMARY KEY);
CREATE FUNCTION public.hold_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM public.held_up WHERE process_id = NEW.process_id FOR SHARE;
    RETURN NEW;
END $$;
CREATE TRIGGER held_up BEFORE INSERT ON progressor.processes
FOR EACH ROW EXECUTE FUNCTION public.hold_up();
"""
_LET_GO: LiteralString = """
DROP TRIGGER held_up ON progressor.processes;
DROP FUNCTION public.hold_up;
DROP TABLE public.held_up;
"""
_WAITING = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
DUE = datetime(2040, 1, 1, 12, tzinfo=UTC)
Ask = Callable[..., Ended]


@pytest.fixture
def three(ask: Ask, order: str) -> list[str]:
    """Three processes, of which each was paid once."""
    names = [f"{order}-{n}" for n in range(3)]
    for name in names:
        assert ask("start", NS, name, '{"item": "tea"}', "--metadata", f'{{"set": "{order}"}}').status == 0
        assert ask("call", NS, name, "pay", '{"amount": 2}', "--idempotency-key", "k").out == "2\n"
    return names


def unfolded(text: str) -> str:
    """What a box in a terminal says, whatever its width."""
    return " ".join(text.replace("│", " ").split())


def exported(ask: Ask, order: str, file: Path, *more: str) -> Ended:
    """The export of a set into a file."""
    return ask("export", NS, "--metadata", f'{{"set": "{order}"}}', "--output", str(file), *more)


def lines_of(file: Path) -> tuple[list[bytes], list[int]]:
    """The lines of an export, and which of them are places from which it can go on."""
    lines = file.read_bytes().splitlines(keepends=True)
    return lines, [n for n, line in enumerate(lines) if line.startswith(b'{"kind":"place"')]


def test_there_and_back(ask: Ask, order: str, three: list[str], tmp_path: Path) -> None:
    """Removed and imported, a process goes on: its state, its answers and its keys are there."""
    file = tmp_path / "orders.ndjson"
    assert "3 processes" in exported(ask, order, file).err
    again = exported(ask, order, file)
    assert (again.status, "--resume" in unfolded(again.err)) == (2, True)
    assert ask("remove", NS, "--metadata", f'{{"set": "{order}"}}', "--yes").status == 0
    looked = ask("import", str(file), "--dry-run", "--json")
    assert looked.json == {"read": 3}
    assert ask("get", NS, three[0]).status == 1
    assert ask("import", str(file), "--json").json == {"imported": 3, "taken": 0}
    assert ask("import", str(file), "--json").json == {"imported": 0, "taken": 3}
    assert "imported 0 processes; 3 were there already" in ask("import", str(file)).err
    repeated = ask("call", NS, three[0], "pay", '{"amount": 2}', "--idempotency-key", "k")
    assert repeated.out == "2\n", "the key is still there, and nothing is paid twice"
    assert ask("call", NS, three[0], "pay", '{"amount": 3}').out == "5\n"
    acts = ask("audit", NS, "--id", three[1], "--json").out.splitlines()
    assert "import" in {json.loads(each)["verb"] for each in acts}


def test_a_compressed_file_and_stdin(ask: Ask, order: str, three: list[str], tmp_path: Path) -> None:
    """Both are read as they come."""
    text = ask("export", NS, three[0]).out
    ask("remove", NS, three[0], "--yes")
    packed = tmp_path / "order.ndjson.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert ask("import", str(packed), "--json").json == {"imported": 1, "taken": 0}
    assert ask("import", "-", "--json", stdin=text).json == {"imported": 0, "taken": 1}
    packed.write_bytes(gzip.compress(text.encode())[:-20])
    broken = ask("import", str(packed))
    assert (broken.status, "cannot be read" in unfolded(broken.err)) == (2, True)
    absent = ask("import", str(tmp_path / "nothing"))
    assert (absent.status, "No such file" in unfolded(absent.err)) == (2, True)


def test_a_stopped_export_is_resumed(
    ask: Ask, order: str, three: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on at the last place of the file, whatever came behind it: the result is that of one run."""
    monkeypatch.setattr(whole, "PAGE", 1)
    one_run = tmp_path / "whole.ndjson"
    assert exported(ask, order, one_run).status == 0
    lines, places = lines_of(one_run)
    assert len(places) >= 2
    for cut in (0, places[0] + 1, places[0] + 3, places[1] + 1, len(lines)):
        file = tmp_path / f"cut-{cut}.ndjson"
        file.write_bytes(b"".join(lines[:cut]) + (lines[cut][:20] if cut < len(lines) else b""))
        resumed = exported(ask, order, file, "--resume")
        assert "3 processes" in resumed.err
        made = re.compile(rb'"made_at":"[^"]*"')
        assert made.sub(b"", file.read_bytes()) == made.sub(b"", one_run.read_bytes())


def test_a_wrong_file_is_left_alone(ask: Ask, order: str, three: list[str], tmp_path: Path) -> None:
    """--resume goes on in an export alone; it empties no other file."""
    file = tmp_path / "notes.txt"
    file.write_text("precious\n")
    refused = exported(ask, order, file, "--resume")
    assert (refused.status, "is not an export" in unfolded(refused.err)) == (2, True)
    assert file.read_text() == "precious\n"


def test_an_export_of_others_is_not_resumed(
    ask: Ask, order: str, three: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file has the processes of one choice: with another one --resume leaves it as it is."""
    monkeypatch.setattr(whole, "PAGE", 1)
    file = tmp_path / "all.ndjson"
    assert exported(ask, order, file).status == 0
    before = file.read_bytes()
    refused = exported(ask, order, file, "--resume", "--status", "error")
    assert (refused.status, "is an export of" in unfolded(refused.err)) == (2, True)
    assert file.read_bytes() == before


def test_an_export_is_for_its_owner(ask: Ask, order: str, three: list[str], tmp_path: Path) -> None:
    """It has what the database has: nobody else may read it."""
    file = tmp_path / "orders.ndjson"
    assert exported(ask, order, file).status == 0
    assert oct(file.stat().st_mode)[-3:] == "600"


def test_an_export_that_cannot_be_written(ask: Ask, order: str, three: list[str], tmp_path: Path) -> None:
    """It says why, without a traceback."""
    for place, why in ((tmp_path / "no" / "orders", "No such file"), (Path("/dev/full"), "No space left")):
        failed = exported(ask, order, place)
        assert (failed.status, why in unfolded(failed.err), "Traceback" in failed.err) == (2, True, False)


def test_what_is_compressed_is_seen_in_the_file(
    ask: Ask, order: str, three: list[str], tmp_path: Path
) -> None:
    """Not in its name: an export whose name ends with .gz is read, and one that was compressed later."""
    file = tmp_path / "orders.ndjson.gz"
    assert exported(ask, order, file).status == 0
    assert ask("import", str(file), "--json").json == {"imported": 0, "taken": 3}
    packed = tmp_path / "orders"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert ask("import", str(packed), "--json").json == {"imported": 0, "taken": 3}


def test_an_export_that_was_stopped_is_not_taken_for_whole(
    ask: Ask, order: str, three: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has is imported, and the command fails: the rest is missing."""
    monkeypatch.setattr(whole, "PAGE", 1)
    file = tmp_path / "stopped.ndjson"
    assert exported(ask, order, file).status == 0
    lines, places = lines_of(file)
    file.write_bytes(b"".join(lines[: places[0] + 1]))
    ask("remove", NS, "--metadata", f'{{"set": "{order}"}}', "--yes")
    stopped = ask("import", str(file))
    assert (stopped.status, "--resume" in unfolded(stopped.err)) == (2, True)
    assert [ask("get", NS, name).status for name in three] == [0, 1, 1]


@pytest.mark.parametrize("behind", ["end", "head", "nothing"])
def test_an_export_that_died_at_the_end_of_a_line(
    ask: Ask, order: str, three: list[str], tmp_path: Path, behind: str
) -> None:
    """A file that ends behind a whole process, behind its head, or is empty, is no whole export."""
    file = tmp_path / "killed.ndjson"
    assert exported(ask, order, file).status == 0
    lines = file.read_bytes().splitlines(keepends=True)
    ends = [n for n, line in enumerate(lines, start=1) if line.startswith(b'{"kind":"end"')]
    kept = {"end": ends[1], "head": 1, "nothing": 0}[behind]
    file.write_bytes(b"".join(lines[:kept]))
    for more in ((), ("--dry-run",)):
        stopped = ask("import", str(file), *more)
        assert (stopped.status, "export" in stopped.err) == (2, True), more
    assert "3 processes" in exported(ask, order, file, "--resume").err
    assert ask("import", str(file), "--json").json == {"imported": 0, "taken": 3}


def test_files_that_were_put_together(ask: Ask, order: str, three: list[str], tmp_path: Path) -> None:
    """Several exports behind each other are whole if each is; lines without a head need no tail."""
    files = []
    for name in three:
        files.append(tmp_path / f"{name}.ndjson")
        assert ask("export", NS, name, "--output", str(files[-1])).status == 0
    texts = [file.read_bytes() for file in files]
    together = tmp_path / "together.ndjson"
    together.write_bytes(b"".join(texts))
    assert ask("import", str(together), "--json").json == {"imported": 0, "taken": 3}
    cut = b"".join(texts[0].splitlines(keepends=True)[:-1])
    together.write_bytes(cut + texts[1])
    assert ask("import", str(together)).status == 2
    lines = b"".join(texts).splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith((b'{"kind":"head"', b'{"kind":"tail"'))]
    together.write_bytes(b"".join(kept))
    assert ask("import", str(together), "--json").json == {"imported": 0, "taken": 3}


@pytest.mark.parametrize("wrong", [("shop.nowhere",), (NS, "nobody"), (NS, "--status", "gone")])
def test_an_export_that_is_refused_writes_nothing(
    ask: Ask, order: str, three: list[str], tmp_path: Path, wrong: tuple[str, ...]
) -> None:
    """Neither a file, in which the corrected command would have to go on, nor a head on stdout."""
    file = tmp_path / "export.ndjson"
    for more in ((), ("--resume",)):
        refused = ask("export", *wrong, "--output", str(file), *more)
        assert (refused.status in (1, 2), file.exists()) == (True, False)
    assert ask("export", *wrong).out == ""
    assert exported(ask, order, file).status == 0


def test_a_bad_file_says_where(ask: Ask, order: str, three: list[str], tmp_path: Path) -> None:
    """The line, what is wrong with it, and how many were imported before it."""
    file = tmp_path / "bad.ndjson"
    good = ask("export", NS, three[0]).out
    file.write_text(good + '{"kind":"task"}\n')
    bad = ask("import", str(file))
    assert bad.status == 2
    number = len(good.splitlines()) + 1
    assert f"line {number} is no record: namespace: Field required" in bad.err
    assert "imported 0 processes before that" in bad.err, "it was there already"


def test_options_that_contradict(ask: Ask, order: str) -> None:
    """They are refused before anything is read or written."""
    assert "name the file: --output" in ask("export", NS, "--resume").err
    assert "leave out PROCESS_ID" in ask("export", NS, order, "--status", "error").err


@pytest.fixture
def many(dsn: str, tmp_path: Path) -> Path:
    """A file of 900 processes, whose namespace is known in a database of its own."""
    psycopg_run(dsn, "INSERT INTO progressor.namespaces (name, options) VALUES (%s, '{}')", NS)
    file = tmp_path / "many.ndjson"
    with file.open("wb") as lines:
        for n in range(900):
            process = made(f"order-{n:05}", namespace=NS, due=DUE)
            lines.writelines(map(write_line, process.records()))
    return file


def psycopg_run(dsn: str, sql: LiteralString, *params: Any) -> list[Any]:
    """The rows of a statement on its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def count(dsn: str) -> int:
    """How many processes there are."""
    ((found,),) = psycopg_run(dsn, "SELECT count(*) FROM progressor.processes")
    return int(found)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_an_import_that_dies_is_repeated(
    dsn: str, many: Path, spawn: Callable[..., Running], tmp_path: Path, by: int
) -> None:
    """Wherever it was stopped, processes are whole or not there; the same command imports the others."""
    at = {"PROGRESSOR_DATABASE_URL": dsn}
    psycopg_run(dsn, _HELD_UP)
    for last in (250, 450, 650):
        name = f"order-{last:05}"
        psycopg_run(dsn, "INSERT INTO public.held_up VALUES (%s)", name)
        with psycopg.connect(dsn) as other:
            other.execute("SELECT FROM public.held_up WHERE process_id = %s FOR UPDATE", [name])
            running = spawn("import", str(many), **at)
            waits_for_locks(dsn)
            running.end_by(by)
            assert last - 100 <= count(dsn) <= last
    psycopg_run(dsn, _LET_GO)
    done = run("import", str(many), "--json", **at)
    assert done.json["imported"] + done.json["taken"] == 900
    again = tmp_path / "again.ndjson"
    assert run("export", NS, "--output", str(again), **at).status == 0
    with many.open("rb") as before, again.open("rb") as after:
        left, right = (sorted(read_wholes(lines), key=by_name) for lines in (before, after))
    assert [outline(each) for each in left] == [outline(each) for each in right]
    check_invariants(dsn)


@pytest.mark.parametrize(("bound", "most", "of_a_page"), [("ROWS", 100, 3), ("BYTES", 1, 1)])
def test_an_export_holds_little_at_once(
    dsn: str,
    progressor: Ask,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
    most: int,
    of_a_page: int,
) -> None:
    """A page of processes with long histories, or large values, has fewer; the export has them all."""
    monkeypatch.setattr(whole, bound, most)
    at = {"PROGRESSOR_DATABASE_URL": dsn}
    psycopg_run(dsn, "INSERT INTO progressor.namespaces (name, options) VALUES (%s, '{}')", NS)
    file, again = tmp_path / "long.ndjson", tmp_path / "again.ndjson"
    with file.open("wb") as lines:
        for n in range(12):
            lines.writelines(map(write_line, long_one(f"order-{n:02}", events=30).records()))
    assert progressor("import", str(file), "--json", **at).json == {"imported": 12, "taken": 0}
    assert progressor("export", NS, "--output", str(again), **at).status == 0
    pages = again.read_bytes().split(b'{"kind":"place"')
    assert max(page.count(b'{"kind":"event"') for page in pages) == of_a_page * 30
    with again.open("rb") as exported:
        assert [each.process.process_id for each in read_wholes(exported)] == [
            f"order-{n:02}" for n in range(12)
        ]


def long_one(name: str, *, events: int) -> WholeProcess:
    """A process with so many events."""
    whole = made(name, namespace=NS, due=DUE)
    its = [whole.events[0].model_copy(update={"event_id": n}) for n in range(1, events + 1)]
    process = whole.process.model_copy(update={"last_event_id": events})
    return whole._replace(process=process, events=its)


def by_name(whole: WholeProcess) -> str:
    """What sorts processes."""
    return whole.process.process_id


def waits_for_locks(dsn: str) -> None:
    """Wait until somebody is held up by who holds a lock."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not psycopg_run(dsn, _WAITING):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_closed_pipe(ask: Ask, three: list[str], shop: str) -> None:
    """`export | head` ends quietly."""
    piped = subprocess.run(
        f"{sys.executable} -m progressor export {NS} | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        env=environment(PROGRESSOR_DATABASE_URL=shop),
        check=False,
    )
    assert json.loads(piped.stdout)["kind"] == "head"
    assert "Traceback" not in piped.stderr
