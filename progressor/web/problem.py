"""Problems of pages: why a page is not shown, or a form did nothing, in the words of the page.

Rule: a field has one name for people, its label, which stands in its page's template alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from progressor.errors import (
    HandlerFailed,
    NamespaceNotFound,
    ProcessBroken,
    ProgressorError,
    StorageUnavailable,
)
from progressor.http.server.problems import Refusal
from progressor.http.wire.problems import kind_of
from progressor.rights import fitting


@dataclass
class PageProblem:
    """The reason why a page is not shown, or a form did nothing; `field` names the one that is wrong.

    `label` is what stands beside that field: the page notes it where it shows the field. `may_be_done`: the
    answer was lost, so that nobody knows whether the form was accepted.
    """

    status: int
    title: str
    detail: str
    field: str | None = None
    label: str | None = None
    may_be_done: bool = False

    @classmethod
    def of(
        cls, error: Refusal | ProgressorError, *, namespaces: Sequence[str], shows_failures: bool
    ) -> PageProblem:
        """Return the problem of an error for a caller who sees the namespaces of these patterns.

        Without `shows_failures` it lacks the text of a failure.
        """
        if isinstance(error, Refusal):
            return cls(error.kind.status, error.kind.title, error.detail, error.members.get("field"))
        kind, detail = kind_of(error), str(error)
        if isinstance(error, HandlerFailed | ProcessBroken) and not shows_failures:
            detail = f"{kind.title}; what failed is for those with the scope errors:read"
        elif isinstance(error, NamespaceNotFound):
            detail = str(NamespaceNotFound(error.namespace, fitting(namespaces, error.similar)))
        may_be_done = isinstance(error, StorageUnavailable)
        return cls(kind.status, kind.title, detail, getattr(error, "field", None), may_be_done=may_be_done)

    def at(self, label: str) -> str:
        """Return the text to show at the wrong field, which has this label from now on."""
        self.label = label
        return self.text

    @property
    def text(self) -> str:
        """Return the detail, in which the label stands for the name that the API has for the field."""
        if self.field is None or self.label is None:
            return self.detail
        return re.sub(rf"^([A-Z]\w*\.)?{re.escape(self.field)}\b", lambda _: self.label or "", self.detail)
