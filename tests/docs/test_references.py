"""The reference pages are equal to the code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import progressor
from progressor import Client, Engine, Namespace, ProcessHandle, SyncClient
from progressor.cli.failures import EXIT_STATUS
from progressor.cli.main import app
from progressor.config import NamespaceOptions, RetryPolicy
from progressor.services.bulk_runner import BulkRunner
from progressor.services.outbox_sweeper import OutboxSweeper
from progressor.services.scanner import Scanner
from progressor.services.subscription_monitor import SubscriptionMonitor
from progressor.services.zombie_collector import ZombieCollector
from progressor.storage.statements import STATEMENTS
from tests.docs.drawn import DRAWN, FILES
from tests.docs.pages import marked, read

PUBLIC = """
    App Lifespan Middleware CallNext StepView LifespanFailed
    Engine Namespace Handler Process Task TaskType TaskStatus ProcessStatus Event HistoryRange Intent
    Cron RRule Monthly Each Rate Retention
    Timer TimerStatus SetTimer UnsetTimer Remove Message Reject NonRetryable RetryPolicy Codec
    Client SyncClient ProcessHandle TraceEntry Page Health Receipt Published KnownNamespace KnownWorker
    DryRun DueTimer
    KnownGroup KnownRetention RetentionEstimate NamespaceStatus WaitingRequests Mailbox FailureGroup
    ProcessChange acting AuditEntry AuditPage tracing log_fields
    Bulk BulkStatus BulkPreview BrokenGroup BulkNotFound
    ProgressorError InvalidRequest IdempotencyConflict NamespaceNotFound NamespaceInUse ProcessNotFound
    ScheduleNotFound
    TaskCancelled TaskNotEnded TaskNotFound HistoryTruncated
    ArchiveDamaged ArchiveUnavailable FeedTruncated FeedEvent FeedKind
    Subscription FeedBatch SubscriptionLost Projection Sink KnownSubscription ParkedEntry
    ProcessAlreadyExists ProcessBroken ProcessNotBroken RepairConflict Rejected HandlerFailed ReplyTimeout
    RequestLost
    StorageUnavailable SchemaMismatch StepTransactionError InvalidState InvalidAnswer CallCycle Expired
    Undecryptable KeyMissing
    development_database __version__
"""
_API = "docs/reference/api.md"
_CONFIGURATION = "docs/reference/configuration.md"


def test_the_public_names_are_pinned() -> None:
    """What `progressor` exports changes on purpose only."""
    assert sorted(progressor.__all__) == sorted(PUBLIC.split())


@pytest.mark.parametrize("name", progressor.__all__)
def test_every_public_name_has_its_place(name: str) -> None:
    """Names stand as headings in api.md, errors as rows of errors.md."""
    in_api = re.search(rf"^###? `?{name}`?$", read(_API), re.MULTILINE)
    in_errors = re.search(rf"^\| `{name}[`(]", read("docs/reference/errors.md"), re.MULTILINE)
    assert in_api or in_errors


@pytest.mark.parametrize(("page", "mark"), DRAWN, ids=" ".join)
def test_what_is_drawn_is_up_to_date(page: str, mark: str) -> None:
    """`python -m tests.docs.drawn` writes these parts anew."""
    assert marked(page, mark) == DRAWN[page, mark]()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_drawn_file_is_up_to_date(path: Path) -> None:
    """`python -m tests.docs.drawn` writes it anew."""
    assert path.read_text(encoding="utf-8") == FILES[path]()


def _methods(of: type) -> list[str]:
    listed = {name: value for each in reversed(of.__mro__[:-1]) for name, value in vars(each).items()}
    return [name for name, value in listed.items() if callable(value) and not name.startswith("_")]


def _parameters(function: Callable[..., Any], *, skip: int) -> str:
    listed = [each.replace(annotation=inspect.Parameter.empty) for each in _listed(function)[skip:]]
    text = str(inspect.Signature(listed))
    return re.sub(r"HistoryRange\(.*?\)", "HistoryRange()", text)


def _listed(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


@pytest.mark.parametrize("name", _methods(Client))
def test_the_clients_methods_have_their_signatures(name: str) -> None:
    """Each method stands in the table with its parameters and defaults."""
    assert f"| `{name}{_parameters(getattr(Client, name), skip=1)}` |" in read(_API)


def test_sync_client_and_handles_have_the_same_methods() -> None:
    """What api.md says of SyncClient and ProcessHandle by pointing at Client."""
    assert set(_methods(SyncClient)) == {*_methods(Client), "run"}
    of_one_process = {
        name
        for name in _methods(Client)
        if "process_id" in inspect.signature(getattr(Client, name)).parameters
    }
    assert set(_methods(ProcessHandle)) == of_one_process - {"process", "audit", "export_processes"}


@pytest.mark.parametrize("of", [Client, SyncClient, Engine])
def test_constructors_have_their_signatures(of: type) -> None:
    """The page says how to make one."""
    assert f"`{of.__name__}{_parameters(of.__init__, skip=1)}`" in read(_API)


def test_options_of_a_namespace_have_their_defaults() -> None:
    """Names and defaults of Namespace and RetryPolicy are those of the code."""
    page = read(_CONFIGURATION)
    of_namespace, of_policy = page.split("## RetryPolicy")
    declared = {each.name: each.default for each in _listed(Namespace.__init__)[2:]}
    # It takes the options as they are.
    del declared["options"]
    declared |= {name: field.default for name, field in NamespaceOptions.model_fields.items()}
    for name, default in declared.items():
        shown = "RetryPolicy()" if name == "retry_policy" else _shown(default)
        assert f"| `{name}` | `{shown}` |" in of_namespace
    for name, field in RetryPolicy.model_fields.items():
        assert f"| `{name}` | `{_shown(field.default)}` |" in of_policy


def _shown(default: Any) -> str:
    return repr(default).replace("datetime.", "")


def _commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    context = group.make_context("progressor", ["dev"], resilient_parsing=True)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}


@pytest.mark.parametrize("name", _commands())
def test_every_command_and_its_own_options_are_listed(name: str) -> None:
    """A command has a line in cli.md; an option that only it has stands on it."""
    page = read("docs/reference/cli.md")
    lines = [line for line in page.splitlines() if line.startswith(f"| `progressor {name}")]
    assert lines
    # The bench has many knobs of its own; its --help is their place.
    if name != "bench":
        for parameter in _commands()[name].params:
            spellings = [*parameter.opts, *parameter.secondary_opts]
            spelled = [option for option in spellings if option.startswith("--")]
            text = "\n".join([*lines, _common(page)])
            assert not spelled or any(option in text for option in spelled), spelled


def _common(page: str) -> str:
    return page.partition("Common options:")[2].partition("\n\n")[0] + " --help"


def test_no_other_commands_are_listed() -> None:
    """The page has no command that is not there."""
    listed = re.findall(r"^\| `progressor ([a-z-]+)", read("docs/reference/cli.md"), re.MULTILINE)
    assert set(listed) == set(_commands())


def test_the_exit_statuses_are_listed() -> None:
    """With the words of --help."""
    page = read("docs/reference/cli.md")
    for status, says in EXIT_STATUS:
        assert f"| {status} | {says.replace('--idempotency-key', '`--idempotency-key`')} |" in page


def test_every_statement_is_on_the_page_of_operations() -> None:
    """No statement is left out."""
    page = read("docs/reference/operations.md")
    left_out = {name for name in STATEMENTS if f"`{name}`" not in page} - {"begin", "commit", "rollback"}
    assert not left_out


def test_the_parts_of_the_background_are_listed() -> None:
    """Whatever may fail in the background has its name on the page of the metrics."""
    source = "".join(each.read_text() for each in Path(progressor.__file__).parent.rglob("*.py"))
    started = re.findall(
        r'(?:(?:_background|projecting)\.(?:keep|begin)|keep_thread|log_failed|report|watched)\(\s*"([^"]+)"',
        source,
    )
    services = {
        each.name for each in (Scanner, SubscriptionMonitor, ZombieCollector, BulkRunner, OutboxSweeper)
    }
    (listed,) = re.findall(r"^\| `part` \| (.+) \|$", read("docs/reference/metrics.md"), re.MULTILINE)
    assert set(re.findall("`([^`]+)`", listed)) == {*started} | services


def test_the_guarantees_are_the_same_everywhere() -> None:
    """README names those that the page explains, and the tests of each stand in its table."""
    page = read("docs/explanation/guarantees.md")
    explained = re.findall(r"^## (\d+\. .+)$", page, re.MULTILINE)
    named = re.findall(r"^(\d+\.) \*\*([^*]+?)\.?\*\*", read("README.md"), re.MULTILINE)
    assert [f"{number} {name}" for number, name in named] == explained
    assert re.findall(r"^\| (\d+\. [^|]+) \| .*tests/", page, re.MULTILINE) == explained
