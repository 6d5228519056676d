"""What the command says of itself."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

import pytest

import progressor as package
from progressor.cli.commands import NAMES
from progressor.deployment.settings import Settings
from tests.cli.conftest import Ended, run

Command = Callable[..., Ended]


def test_help_teaches(progressor: Command) -> None:
    """Every command by what it is for, examples, exit statuses, and every setting."""
    shown = progressor("--help", COLUMNS="120").out
    for part in ("Run", "Ask", "Look", "Maintain", "Examples", "Exit status", "Settings"):
        assert part in shown
    assert all(variable.name in shown for variable in Settings.variables())
    assert all(name in shown for name in NAMES)


def test_help_shows_defaults_and_no_values(progressor: Command) -> None:
    """What the environment holds may be secret."""
    shown = progressor("--help", PROGRESSOR_DATABASE_URL="postgresql://u:s3cr3t@h/db", COLUMNS="150").out
    assert "s3cr3t" not in shown
    assert "How often a worker says that it lives, at least three times per lease_age. [3]" in shown


@pytest.mark.parametrize("command", [name for name in NAMES if name not in ("token", "retention")])
def test_every_command_has_a_help(progressor: Command, command: str) -> None:
    """Which says where the database comes from, or that it reads the archive alone."""
    shown = progressor(command, "--help", COLUMNS="120")
    assert shown.status == 0
    assert ("PROGRESSOR_ARCHIVE" if command == "archive" else "--database-url") in shown.out


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ((), "each working folder; migrate, worker, scanner, zombie-collector and api use it"),
        (("repair",), "bulk, which runs in the background. It repairs what is broken now and matches,"),
    ],
)
def test_paragraphs_fill_the_terminal(progressor: Command, command: tuple[str, ...], line: str) -> None:
    """Whatever its width: they are not broken where the source is."""
    shown = progressor(*command, "--help", COLUMNS="80").out
    assert line in [each.strip() for each in shown.splitlines()]


def test_version() -> None:
    """The release that runs is the one that is installed, under the name of the distribution."""
    shown = run("--version")
    assert (shown.status, shown.out) == (0, f"progressor {package.__version__}\n")
    assert version("progressor-engine") == package.__version__


def test_no_command_shows_the_help(progressor: Command) -> None:
    """Rather than an error."""
    assert "Examples" in progressor().out
