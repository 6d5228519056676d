"""The settings: variables, defaults, durations, secrets."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from progressor.config import ConnectionOptions, EngineOptions
from progressor.deployment.settings import Settings
from progressor.errors import InvalidRequest


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PROGRESSOR_")]:
        monkeypatch.delenv(name)


def test_without_variables_the_engine_has_its_own_defaults() -> None:
    """And there is no database."""
    assert Settings().engine_options() == EngineOptions().model_dump()
    assert Settings().connection_options() == ConnectionOptions().model_dump()
    assert Settings().database_url is None


def test_every_engine_option_has_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which reaches the engine."""
    names = {variable.name for variable in Settings.variables()}
    assert {f"PROGRESSOR_{name.upper()}" for name in EngineOptions.model_fields} <= names
    monkeypatch.setenv("PROGRESSOR_CONNECTIONS", "3")
    monkeypatch.setenv("PROGRESSOR_SCANNER", "false")
    monkeypatch.setenv("PROGRESSOR_DATA_DIR", "/srv/data")
    settings = Settings()
    assert EngineOptions(**settings.engine_options()).connections == 3
    assert settings.scanner is False
    assert settings.data_dir == Path("/srv/data")


@pytest.mark.parametrize(
    ("text", "seconds"), [("2", 2), ("1.5", 1.5), ("PT1M", 60), ("00:01:30", 90), ("1e2", 100)]
)
def test_durations(monkeypatch: pytest.MonkeyPatch, text: str, seconds: float) -> None:
    """Seconds, ISO 8601, or hours, minutes and seconds."""
    monkeypatch.setenv("PROGRESSOR_SCAN_INTERVAL", text)
    assert Settings().scan_interval == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("SCAN_INTERVAL", "often", "Input should be a duration: seconds (1.5)"),
        ("STOP_GRACE", "nan", "Input should be a duration"),
        ("STOP_GRACE", "inf", "Input should be a duration"),
        ("LEASE_AGE", "-1", "greater than 0"),
        ("HEARTBEAT_INTERVAL", "5.1", "at most a third of PROGRESSOR_LEASE_AGE (15 s), not 5.1 s"),
        ("CONNECTIONS", "1", "greater than or equal to 2"),
        ("METRICS_PORT", "65536", "less than or equal to 65535"),
        ("LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("SCANNER", "perhaps", "valid boolean"),
    ],
)
def test_an_error_names_the_variable_and_the_rule(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, says: str
) -> None:
    """As it is spelled in the environment."""
    monkeypatch.setenv(f"PROGRESSOR_{name}", text)
    with pytest.raises(InvalidRequest, match=f"^PROGRESSOR_{name}: ") as caught:
        Settings()
    assert says in str(caught.value)
    assert caught.value.field == name.lower()


def test_an_error_of_two_settings_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are spelled in the environment, with what to do; either may be the one that was set."""
    monkeypatch.setenv("PROGRESSOR_LEASE_AGE", "1")
    with pytest.raises(InvalidRequest) as caught:
        Settings()
    assert str(caught.value) == (
        "PROGRESSOR_HEARTBEAT_INTERVAL: must be at most a third of PROGRESSOR_LEASE_AGE (1 s), not 3 s: "
        "raise PROGRESSOR_LEASE_AGE to 9 s, or lower PROGRESSOR_HEARTBEAT_INTERVAL"
    )


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As shells and deployments write it."""
    monkeypatch.setenv("PROGRESSOR_DATABASE_URL", "")
    monkeypatch.setenv("PROGRESSOR_METRICS_PORT", "")
    assert (Settings().database_url, Settings().metrics_port) == (None, None)


def test_arguments_go_before_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stated in code or on the command line holds."""
    monkeypatch.setenv("PROGRESSOR_LOG_LEVEL", "DEBUG")
    assert Settings().log_level == "debug"
    assert Settings(log_level="error").log_level == "error"


def test_unknown_arguments_are_refused() -> None:
    """A misspelled one is not passed over."""
    with pytest.raises(InvalidRequest):
        Settings(scan_intervall=1)


def test_secrets_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in a dump of the settings nor in an error."""
    monkeypatch.setenv("PROGRESSOR_DATABASE_URL", "postgresql://me:s3cr3t@h/db")
    settings = Settings()
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == "postgresql://me:s3cr3t@h/db"
    assert "s3cr3t" not in repr(settings) + str(settings.model_dump()) + settings.model_dump_json()
    assert all("s3cr3t" not in " ".join(variable) for variable in Settings.variables())
    monkeypatch.setenv("PROGRESSOR_CONNECTIONS", "none")
    with pytest.raises(InvalidRequest) as caught:
        Settings()
    assert "s3cr3t" not in f"{caught.value!r}{caught.value.__cause__!r}"


def test_every_variable_is_described() -> None:
    """For the help and the page."""
    assert all(variable.description for variable in Settings.variables())
