"""A use imports what it needs and no more, so that commands and small services start at once."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import progressor
from progressor import http, storage

_COMMAND = """
sys.argv = ["progressor", "--version"]
from progressor.cli.main import main
try:
    main()
except SystemExit:
    pass
"""
# What each use must not import. The API's libraries, those of migrations and reads, drivers, commands.
USES = {
    "from progressor import Client, Engine, Namespace, Process, SyncClient": (
        "aiohttp alembic cronsim fastapi httpx opentelemetry sqlalchemy starlette typer uvicorn"
    ),
    "from progressor.http import HttpClient": (
        "alembic cronsim fastapi opentelemetry prometheus_client psycopg sqlalchemy starlette typer uvicorn"
    ),
    _COMMAND: "aiohttp alembic cronsim fastapi httpx opentelemetry psycopg sqlalchemy starlette uvicorn",
}


@pytest.mark.parametrize(("use", "unused"), USES.items(), ids=["engine", "http client", "command"])
def test_a_use_imports_no_more_than_it_needs(use: str, unused: str) -> None:
    """Checked in a process of its own, which has imported nothing before."""
    program = f"import sys\n{use}\nprint(*sys.modules, sep='\\n')"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) & set(unused.split()) == set()


@pytest.mark.parametrize("package", [progressor, storage, http], ids=lambda package: package.__name__)
def test_types_and_exports_name_the_same(package: ModuleType) -> None:
    """A type checker sees each name in the module that it comes from at run time."""
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(typed) == sorted({*package.__all__} - {"__version__"})
    for name, module in typed.items():
        assert getattr(package, str(name)) is getattr(importlib.import_module(str(module)), str(name))


def test_a_package_lists_its_names_and_refuses_others() -> None:
    """As one that imports everything at once does."""
    assert {"Client", "Engine", "__version__"} <= {*dir(progressor)}
    with pytest.raises(AttributeError, match="module 'progressor' has no attribute 'Clinet'"):
        progressor.Clinet  # type: ignore[attr-defined] # noqa: B018 - the point of it
