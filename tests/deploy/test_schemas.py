"""What is written for Compose, Kubernetes and systemd is what these understand."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from check_jsonschema.builtin_schemas import get_builtin_schema

from tests.deploy.manifests import DEPLOY, UNITS, compose, documents, kubernetes, kustomization

# The oldest release that its makers still mend, and the newest of which there are schemas.
_KUBERNETES = ("1.33", "1.36")


def test_compose() -> None:
    """By the schema of the Compose specification; whoever is waited for is there."""
    document = compose()
    jsonschema.validate(document, get_builtin_schema("vendor.compose-spec"))
    services = document["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        named = {each.partition(":")[0] for each in service.get("volumes", ())}
        assert {each for each in named if each[0] != "."} <= set(document["volumes"])
        assert all((DEPLOY / each).exists() for each in named if each[0] == ".")


@pytest.mark.parametrize("version", _KUBERNETES)
@pytest.mark.parametrize(("name", "document"), list(kubernetes()), ids=lambda value: str(value)[:24])
def test_kubernetes(version: str, name: str, document: dict[str, Any]) -> None:
    """By the schema of the API server; a field that it does not know is a mistake."""
    kubernetes_validate.validate(document, version, strict=True)


def test_selectors_select() -> None:
    """Each Deployment its own pods, each budget and Service those of one, the monitor all of them."""
    pods = {
        document["metadata"]["name"]: document["spec"]["template"]["metadata"]["labels"]
        for _, document in kubernetes()
        if document["kind"] == "Deployment"
    }
    assert len(pods) == 5
    for _, document in kubernetes():
        name, selector = document["metadata"]["name"], document["spec"].get("selector")
        if selector is not None:
            wanted = selector.get("matchLabels", selector)
            assert [pod for pod, labels in pods.items() if wanted.items() <= labels.items()] == [name]
    budgets = {
        each["metadata"]["name"] for _, each in kubernetes() if each["kind"] == "PodDisruptionBudget"
    }
    assert budgets == set(pods)
    (monitor,) = documents(DEPLOY / "kubernetes/monitoring/pod-monitor.yaml")
    assert all(
        monitor["spec"]["selector"]["matchLabels"].items() <= labels.items() for labels in pods.values()
    )


def test_kustomizations_name_their_files() -> None:
    """All that are there, and no others."""
    base = {path.name for path in (DEPLOY / "kubernetes/base").glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization("base")["resources"]) == base
    for name in ("base", "monitoring", "example"):
        folder, document = DEPLOY / "kubernetes" / name, kustomization(name)
        for each in [*document.get("resources", ()), *document.get("components", ())]:
            assert (folder / each).exists()


def test_kustomize_builds_the_example() -> None:
    """With kubectl, which needs no cluster for it."""
    if (kubectl := shutil.which("kubectl")) is None:
        pytest.skip("there is no kubectl")
    built = subprocess.run(
        [kubectl, "kustomize", DEPLOY / "kubernetes/example"], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    assert built.stdout.count("image: registry.example/billing:2026.11.1") == 6
    assert "shop:orders" in built.stdout


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd(path: Path, tmp_path: Path) -> None:
    """By systemd's own look at it, with a program that is there in place of ours."""
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("there is no systemd-analyze")
    copy = tmp_path / path.name.replace("@", "@1")
    copy.write_text(
        re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", path.read_text("utf-8"), flags=re.MULTILINE)
    )
    looked = subprocess.run(
        [analyze, "verify", "--man=no", copy], capture_output=True, text=True, check=False
    )
    # Where systemd does not run, it has to say about itself; what it says of the unit names its file.
    assert path.stem not in looked.stderr.replace(str(tmp_path), ""), looked.stderr
    assert looked.returncode == 0, looked.stderr
