"""APP: what `module:attribute` finds, and what is said when it finds nothing."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
import typer

from progressor.cli.apps import load
from tests.cli.conftest import HERE


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module into the current directory; its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])

    def write(text: str) -> str:
        name = f"app_{uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)
    monkeypatch.setattr(sys, "path", sys.path[:])
    # Other tests have a module of this name.
    monkeypatch.delitem(sys.modules, "shop", raising=False)


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("app", "names"),
    [
        ("shop:orders", ["shop.order"]),
        ("shop:both", ["shop.order", "shop.cart"]),
        ("shop", ["shop.order", "shop.cart"]),
    ],
)
def test_finds_namespaces(app: str, names: list[str]) -> None:
    """One, a list of them, or all that a module has."""
    assert [namespace.name for namespace in load(app).namespaces] == names


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("app", "says"),
    [
        ("", "write it as module:attribute"),
        ("shop:", "write it as module:attribute"),
        ("./shop.py:orders", "write the module, not the file: shop:orders"),
        ("shopp:orders", "there is no module 'shopp', neither in"),
        ("shop.orders", "there is no module 'shop.orders'"),
        ("shop:oders", "has no attribute 'oders'; it has the namespaces orders, carts"),
        ("shop:number", "must be an App, a Namespace or a list of Namespaces, not a int"),
        ("shop:nothing", "not an empty list"),
        ("shop:odd", "not a tuple with a str"),
        ("json", "has no Namespace of its own"),
    ],
)
def test_says_what_is_wrong(app: str, says: str) -> None:
    """And how to write it instead, where that can be guessed."""
    with pytest.raises(typer.BadParameter) as caught:
        load(app)
    assert says in str(caught.value)


def test_an_attribute_may_be_nested(module: Callable[[str], str]) -> None:
    """As in a settings class."""
    name = module("from progressor import Namespace\nclass Apps:\n    billing = [Namespace('billing')]\n")
    assert [namespace.name for namespace in load(f"{name}:Apps.billing").namespaces] == ["billing"]


APPS = """
from progressor import App, Namespace
billing, letters = Namespace("billing"), Namespace("letters")
first = again = App([billing])
"""


def test_an_app_wins_over_the_namespaces_beside_it(module: Callable[[str], str]) -> None:
    """In a module that is not told which; by its name it is found too."""
    name = module(APPS)
    assert [each.name for each in load(name).namespaces] == ["billing"]
    assert load(f"{name}:first") is load(name)
    assert [each.name for each in load(f"{name}:letters").namespaces] == ["letters"]


def test_two_apps_must_be_told_apart(module: Callable[[str], str]) -> None:
    """The error says how to name one of them."""
    name = module(APPS + "second = App([letters])")
    with pytest.raises(
        typer.BadParameter, match=f"more than one App: name one of {name}:first, "
    ) as caught:
        load(name)
    assert f"{name}:second" in str(caught.value)
    assert [each.name for each in load(f"{name}:second").namespaces] == ["letters"]
    with pytest.raises(
        typer.BadParameter, match="it has the Apps first, again, second and the namespaces "
    ):
        load(f"{name}:third")


def test_namespaces_of_one_name(module: Callable[[str], str]) -> None:
    """They cannot be served together."""
    name = module("from progressor import Namespace\na, b = Namespace('a'), Namespace('a')\n")
    with pytest.raises(typer.BadParameter, match="two namespaces have the same name: a"):
        load(name)


@pytest.mark.parametrize(
    ("text", "last_line"),
    [
        ("def fail():\n    raise KeyError('price')\n\nfail()\n", "KeyError: 'price'"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("x = (\n", "SyntaxError: '(' was never closed"),
    ],
)
def test_an_error_of_the_module_is_shown_with_its_traceback(
    module: Callable[[str], str], capsys: pytest.CaptureFixture[str], text: str, last_line: str
) -> None:
    """From the user's first line on, without the machinery before it."""
    name = module(text)
    with pytest.raises(typer.Exit) as caught:
        load(f"{name}:app")
    assert caught.value.exit_code == 1
    said = capsys.readouterr().err
    assert last_line in said
    assert f"{name}.py" in said
    assert "importlib" not in said
    assert said.endswith("see the traceback above\n")


def test_logs_that_a_module_sets_up_silence_no_worker(module: Callable[[str], str]) -> None:
    """By default `dictConfig` disables the loggers that are there and that it does not name."""
    name = module(
        "from logging.config import dictConfig\n"
        "from progressor import Namespace\n"
        "dictConfig({'version': 1})\n"
        "orders = Namespace('shop.order')\n"
    )
    loggers = [
        each for each in logging.Logger.manager.loggerDict.values() if isinstance(each, logging.Logger)
    ]
    before = [each.disabled for each in loggers]
    try:
        load(name)
        disabled = {each.name for each in loggers if each.disabled}
    finally:
        for each, was_disabled in zip(loggers, before, strict=True):
            each.disabled = was_disabled
    assert "asyncio" in disabled
    assert not [each for each in disabled if each.startswith("progressor.")]


def test_as_a_command(progressor: Callable[..., object]) -> None:
    """A wrong APP is a usage error, before any database is looked for."""
    wrong = progressor("worker", "--embedded", "nowhere.at_all:app", COLUMNS="200")
    assert wrong.status == 2  # type: ignore[attr-defined]
    assert "there is no module 'nowhere'" in wrong.err  # type: ignore[attr-defined]


def test_no_handlers_are_loaded_for_no_database(progressor: Callable[..., object]) -> None:
    """What is missing first is said first."""
    wrong = progressor("worker", "nowhere.at_all:app", COLUMNS="200")
    assert wrong.status == 2  # type: ignore[attr-defined]
    assert "there is no database" in wrong.err  # type: ignore[attr-defined]
