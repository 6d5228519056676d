"""Whatever the command line is given: an answer, or one line that says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from typer.testing import CliRunner

from progressor.cli.main import app
from tests.bad_input import draws
from tests.bad_input.world import NS, World, a_world, fresh
from tests.model.profiles import profile

SAID_NO = (1, 2)
_json = st.one_of(
    draws.exact.map(json.dumps),
    st.sampled_from(
        ["NaN", "-Infinity", "{", "[" * 50_000, '"\\ud800"', '"\\u0000"', "1e999", "1" * 5000, "@", "@/"]
    ),
    st.sampled_from([json.dumps(draws.nested(depth)) for depth in (199, 201, 250, 300, 900)]),
    draws.texts,
)


@pytest.fixture
def world(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("PROGRESSOR_DATABASE_URL", dsn)
    monkeypatch.setenv("PROGRESSOR_DATA_DIR", "/nowhere")
    with a_world(dsn) as world:
        yield world


@profile(quick=25, deep=400, steps=1)
@given(
    process_id=st.builds(fresh) | draws.ids,
    args=_json,
    key=st.none() | draws.ids,
    metadata=st.none() | _json,
    context=st.none() | _json,
    timeout=st.none() | st.sampled_from(["nan", "inf", "-1", "0", "soon", "20", "PT20S", "1e400"]),
)
def test_start(
    world: World,
    process_id: str,
    args: str,
    key: str | None,
    metadata: str | None,
    context: str | None,
    timeout: str | None,
) -> None:
    """Any command line is refused in words, without a traceback, or is carried out."""
    options = {"--idempotency-key": key, "--metadata": metadata, "--context": context, "--timeout": timeout}
    given_options = [f"{name}={value}" for name, value in options.items() if value is not None]
    command = ["start", "--json", *given_options, "--", NS, process_id, args]

    async def ask(_client: object) -> object:
        return await world.in_thread(lambda: CliRunner().invoke(app, command))

    result = world.run(world.amid_neighbours(ask))
    assert not isinstance(result, BaseException), repr(result)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    if result.exit_code == 0:
        json.loads(result.stdout)
    else:
        assert result.exit_code in SAID_NO
        assert result.stderr.strip()


def test_ten_megabytes_from_a_file(world: World, tmp_path: Path) -> None:
    """Too large a file is refused by the name of the limit's variable."""
    path = tmp_path / "args.json"
    path.write_text(json.dumps("x" * 10_000_000))
    result = CliRunner().invoke(app, ["start", "--json", NS, "p", f"@{path}"])
    assert result.exit_code == 2
    assert json.loads(result.stderr)["field"] == "args"
    assert "PROGRESSOR_MAX_VALUE_BYTES" in result.stderr
