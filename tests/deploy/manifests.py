"""What stands in `deploy/`: the commands that it runs with their variables, alerts and panels."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.docs.pages import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
_PROGRAM = "/opt/progressor/bin/progressor"


@dataclass(frozen=True)
class Command:
    """One command line of `progressor`, with the settings that it is given."""

    place: str
    words: tuple[str, ...]
    settings: dict[str, str]


def documents(path: Path) -> list[Any]:
    """All documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def compose() -> dict[str, Any]:
    (document,) = documents(DEPLOY / "docker-compose.yml")
    return dict(document)


def kubernetes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the base, with the name of its file."""
    for path in sorted((DEPLOY / "kubernetes/base").glob("*.yaml")):
        if path.name != "kustomization.yaml":
            for document in documents(path):
                yield path.name, document


def kustomization(name: str) -> dict[str, Any]:
    (document,) = documents(DEPLOY / "kubernetes" / name / "kustomization.yaml")
    return dict(document)


def env_file(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def unit(path: Path) -> dict[str, str]:
    """The settings of a unit; none of ours stands twice."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if re.match(r"\w+=", line))
    return {name: value for name, _, value in pairs}


def commands() -> list[Command]:
    """Everything that the files of deploy/ run of ours."""
    return [*_of_compose(), *_of_kubernetes(), *_of_systemd()]


def _settings(environment: dict[str, Any]) -> dict[str, str]:
    # The password comes from elsewhere: Compose puts it in.
    return {
        name: re.sub(r"\$\{\w+:\?[^}]*\}", "secret", str(value))
        for name, value in environment.items()
        if name.startswith("PROGRESSOR_")
    }


def _of_compose() -> Iterator[Command]:
    for name, service in compose()["services"].items():
        if service["image"] == "progressor":
            yield Command(f"compose {name}", tuple(service["command"]), _settings(service["environment"]))


def _of_kubernetes() -> Iterator[Command]:
    shared = dict(each.split("=", 1) for each in kustomization("base")["configMapGenerator"][0]["literals"])
    for place, document in kubernetes():
        if document["kind"] in ("Deployment", "Job"):
            for container in document["spec"]["template"]["spec"]["containers"]:
                own = {each["name"]: "postgresql://db/shop" for each in container["env"]}
                common = shared if "envFrom" in container else {}
                yield Command(f"kubernetes {place}", tuple(container["args"]), {**common, **own})


def _of_systemd() -> Iterator[Command]:
    settings = env_file(DEPLOY / "systemd/progressor.env.example")
    for path in UNITS:
        line = unit(path)["ExecStart"].replace("${APP}", settings["APP"]).replace("%i", "1")
        program, *words = shlex.split(line)
        assert program == _PROGRAM
        yield Command(f"systemd {path.name}", tuple(words), _settings(settings))


def rules() -> list[dict[str, Any]]:
    """All alerts."""
    (document,) = documents(DEPLOY / "prometheus/alerts.yml")
    return [rule for group in document["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/progressor.json").read_text("utf-8"))
    return loaded


def panels() -> list[dict[str, Any]]:
    """Those that show something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
