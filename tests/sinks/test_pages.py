"""What the pages say of the options of sinks is so."""

from __future__ import annotations

import re
import tomllib
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from progressor.sinks.ndjson import NdjsonOptions
from progressor.sinks.webhook import WebhookOptions
from tests.docs.pages import ROOT, blocks, read

_OF_THE_SUBSCRIPTION = {"namespaces", "events", "kinds", "start"}
_PAGES: dict[str, type[BaseModel]] = {
    "docs/how-to/send-events-to-webhooks.md": WebhookOptions,
    "docs/how-to/send-events-to-files.md": NdjsonOptions,
}


@pytest.mark.parametrize("page", _PAGES)
def test_the_configuration_of_a_page_opens_a_sink(page: str) -> None:
    """With a secret in the place of the variable."""
    (block,) = blocks(ROOT / page, "toml")
    code = re.sub('"env:\\w+"', f'"whsec_{"A" * 32}"', block.code)
    ((name, given),) = tomllib.loads(code)["sinks"].items()
    assert re.fullmatch("[a-z-]+", name)
    own = {option: value for option, value in given.items() if option not in _OF_THE_SUBSCRIPTION}
    opened: Any = _PAGES[page].model_validate(own)
    assert repr(opened.open()).startswith("<")


def test_the_options_of_a_webhook_have_their_defaults() -> None:
    """Each stands in the table of the page, with what it is if it is not given."""
    rows = re.findall(
        r"^\| `(\w+)` \| (\S+) \|", read("docs/how-to/send-events-to-webhooks.md"), re.MULTILINE
    )
    options = {name: field for name, field in WebhookOptions.model_fields.items() if name != "type"}
    assert [name for name, _ in rows] == [*options]
    for name, said in rows:
        default = options[name].default
        if isinstance(default, timedelta):
            default = int(default.total_seconds())
        expected = "none" if options[name].is_required() or default is None else str(default).lower()
        assert said == expected, name
