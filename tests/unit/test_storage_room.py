"""What storage hands out to other rooms."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from progressor import storage

_ROWS = re.compile(r"\b(?:Row|Results|Session|dict\[str, Any\])(?!\w)")


def _public() -> Iterator[tuple[str, str]]:
    """Each public method of what is handed out, and what it says that it returns."""
    for name in storage.__all__:
        owner = getattr(storage, name)
        if inspect.isclass(owner):
            for method, function in inspect.getmembers(owner, inspect.isfunction):
                if not method.startswith("_"):
                    yield f"{name}.{method}", str(function.__annotations__.get("return"))


def test_no_row_leaves_storage() -> None:
    """Methods return types of the model or of storage, whose fields have names."""
    returned = dict(_public())
    assert "Storage.backlog" in returned
    assert [name for name, says in returned.items() if _ROWS.search(says)] == []
