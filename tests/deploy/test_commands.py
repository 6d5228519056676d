"""Every command line and variable of deploy/ is one that there is; what belongs together says the same."""

from __future__ import annotations

import os
import re
import sys

import pytest
from typer.testing import CliRunner

from progressor.cli import failures, runner
from progressor.cli.main import app
from progressor.config import EngineOptions
from progressor.deployment.settings import Settings
from tests.deploy.manifests import (
    DEPLOY,
    UNITS,
    Command,
    commands,
    compose,
    documents,
    env_file,
    kubernetes,
    kustomization,
    unit,
)

_SERVICES = {"worker", "scanner", "zombie-collector", "api", "web"}
# How long a stop may take: the steps' own grace, and what comes beyond it.
_STOP_SECONDS = (EngineOptions().stop_grace + runner.BEYOND_GRACE).total_seconds()


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.place)
def test_each_command_is_understood(command: Command) -> None:
    """With --help behind it: the command and its options exist."""
    result = CliRunner().invoke(app, [*command.words, "--help"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.place)
def test_each_variable_is_a_setting(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a value that it takes; and each service knows its database and writes JSON."""
    for name in [name for name in os.environ if name.startswith("PROGRESSOR_")]:
        monkeypatch.delenv(name)
    known = {variable.name for variable in Settings.variables()}
    assert set(command.settings) <= known
    for name, value in command.settings.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.database_url is not None
    if command.words[0] in _SERVICES and "systemd" not in command.place:
        assert (settings.log_format, settings.metrics_port, settings.metrics_host) == (
            "json",
            9464,
            "0.0.0.0",
        )


@pytest.mark.parametrize("kind", ["compose", "kubernetes", "systemd"])
def test_every_service_is_deployed(kind: str) -> None:
    """In each of the three ways, and the migration with them."""
    deployed = {command.words[0] for command in commands() if command.place.startswith(kind)}
    assert deployed == _SERVICES | {"migrate"}


def test_where_there_is_a_scanner_the_workers_have_none() -> None:
    """And no collector; the file of the units says it with variables."""
    for command in commands():
        if command.words[0] == "worker":
            told = {"--no-scanner", "--no-zombie-collector"} <= set(command.words)
            off = {command.settings.get(f"PROGRESSOR_{name}") for name in ("SCANNER", "ZOMBIE_COLLECTOR")}
            assert told or off == {"false"}, command.place


def test_a_stop_has_the_time_that_it_may_take() -> None:
    """More than the grace of the steps and what comes beyond it, wherever somebody kills in the end."""
    given = {
        name: service["stop_grace_period"].removesuffix("s")
        for name, service in compose()["services"].items()
        if service["image"] == "progressor"
    }
    given |= {path.name: unit(path)["TimeoutStopSec"] for path in UNITS if "TimeoutStopSec" in unit(path)}
    given |= {
        name: document["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        for name, document in kubernetes()
        if document["kind"] == "Deployment"
    }
    assert len(given) == 3 * len(_SERVICES) + 1
    assert {name for name, seconds in given.items() if float(seconds) <= _STOP_SECONDS} == set()


def test_who_ends_with_status_0_is_started_again() -> None:
    """That is how a recycled worker ends."""
    services = compose()["services"]
    assert {services[name]["restart"] for name in _SERVICES} == {"always"}
    assert {unit(path).get("Restart") for path in UNITS if "migrate" not in path.name} == {"always"}


def test_a_unit_that_cannot_start_does_not_try_for_ever() -> None:
    """A wrong setting ends it; what may pass is tried again, with a pause that fills no log."""
    for path in UNITS:
        if "migrate" not in path.name:
            told = unit(path)
            assert told["RestartPreventExitStatus"] == str(failures.WRONG), path.name
            assert int(told["RestartSec"]) >= 5


def test_probes_ask_the_pages_that_there_are() -> None:
    """Life of the loop, readiness of the database; for longer than an answer may take."""
    pages = (DEPLOY.parent / "progressor/deployment/monitor.py").read_text("utf-8")
    for name, document in kubernetes():
        if document["kind"] == "Deployment":
            (container,) = document["spec"]["template"]["spec"]["containers"]
            live, ready = container["livenessProbe"], container["readinessProbe"]
            assert (live["httpGet"]["path"], ready["httpGet"]["path"]) == (
                "/health/live",
                "/health/ready",
            ), name
            assert all(f'case "{probe["httpGet"]["path"]}"' in pages for probe in (live, ready))
            assert min(live["timeoutSeconds"], ready["timeoutSeconds"]) > 2
            names = {port["name"] for port in container["ports"]}
            assert {live["httpGet"]["port"], ready["httpGet"]["port"]} <= names


def test_no_variable_comes_from_a_service_of_kubernetes() -> None:
    """One called progressor-metrics would set PROGRESSOR_METRICS_PORT to an address."""
    pods = [each["spec"]["template"]["spec"] for _, each in kubernetes() if "template" in each["spec"]]
    assert [pod["enableServiceLinks"] for pod in pods] == [False] * 6


def test_the_migration_has_the_settings_of_the_services() -> None:
    """Else another schema would be migrated than the one that they use."""
    for kind in ("compose", "kubernetes"):
        said = [each.settings.items() for each in commands() if each.place.startswith(kind)]
        shared = set.intersection(*(set(each) for each in said))
        assert {"PROGRESSOR_LOG_FORMAT", "PROGRESSOR_METRICS_HOST"} <= dict(shared).keys()


def test_compose_builds_the_image_once() -> None:
    """Several builds at once would write one name. Who waits for PostgreSQL waits for what it asks."""
    services = compose()["services"]
    assert [name for name, service in services.items() if "build" in service] == ["migrate"]
    # While its image makes the database, it listens on a socket alone, and begins anew after that.
    assert "--host=127.0.0.1" in services["postgres"]["healthcheck"]["test"]


def test_prometheus_scrapes_every_service_of_compose() -> None:
    """By its name, on the port that it serves its metrics on."""
    (config,) = documents(DEPLOY / "prometheus/prometheus.yml")
    (found,) = config["scrape_configs"][0]["dns_sd_configs"]
    assert set(found["names"]) == _SERVICES
    services = compose()["services"]
    assert {services[name]["environment"]["PROGRESSOR_METRICS_PORT"] for name in _SERVICES} == {
        str(found["port"])
    }


def test_a_secret_is_in_no_file() -> None:
    """Of a database there is an example only, or a place where the password comes from."""
    for path in sorted(DEPLOY.rglob("*")):
        # What Python keeps beside the example is compiled.
        if path.is_file() and path.suffix != ".pyc":
            for found in re.findall(r"postgresql://[^:/\s]+:([^@\s]+)@", path.read_text("utf-8")):
                assert found in ("secret", "…", "${POSTGRES_PASSWORD:?write it to deploy/.env}"), path


def test_the_units_share_their_ports_with_nobody() -> None:
    """On one machine there may be nine workers, and one of each other service."""
    ports = [re.findall(r"--(?:metrics-)?port (\S+)", unit(path)["ExecStart"]) for path in UNITS]
    listed = [port for each in ports for port in each]
    assert len(set(listed)) == len(listed) == 7


def test_the_image_brings_what_the_services_need() -> None:
    """The extra of console and API, and not the embedded server's; it is not run as root."""
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert "'.[web]'" in text
    assert "embedded" not in text
    assert re.search(r"^USER [1-9]\d+$", text, re.MULTILINE)
    copied = {
        name for line in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE) for name in line.split()
    }
    let_in = set(
        re.findall(r"^!(\S+)$", (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8"), re.MULTILINE)
    )
    assert copied == let_in
    assert all((DEPLOY.parent / name).exists() for name in copied)


def test_the_overlay_changes_what_there_is() -> None:
    """The example replaces an argument that is there, and counts a Deployment that is there."""
    overlay = kustomization("example")
    names = {document["metadata"]["name"] for _, document in kubernetes()}
    assert {each["name"] for each in overlay["replicas"]} <= names
    assert overlay["patches"][0]["target"]["name"] in names
    (worker,) = (each for each in commands() if each.place == "kubernetes worker.yaml")
    assert worker.words[1] == env_file(DEPLOY / "systemd/progressor.env.example")["APP"]


def test_the_example_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name under which compose runs it."""
    monkeypatch.setattr(sys, "path", [str(DEPLOY / "example"), *sys.path])
    (words,) = (each.words for each in commands() if each.place == "compose worker")
    module, _, attribute = words[1].partition(":")
    monkeypatch.delitem(sys.modules, module, raising=False)
    assert hasattr(__import__(module), attribute)
    monkeypatch.delitem(sys.modules, module, raising=False)
