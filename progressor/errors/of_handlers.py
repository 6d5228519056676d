"""Errors that handlers raise."""

from __future__ import annotations

from typing import Any


class Reject(Exception):
    """Raise in a handler to refuse a request: the caller gets `Rejected`, nothing of the step is saved.

    `reason` is a text for the caller. Further keywords must be JSON values; the caller finds them in
    `Rejected.details`. A timer has no caller: there it counts as a failure.
    """

    def __init__(self, reason: str, /, **details: Any) -> None:
        super().__init__(reason)
        self.reason = str(reason)
        self.details = details


class NonRetryable(Exception):
    """Raise in a timeout handler to break the process at once, without the retries of its policy."""


class StepTransactionError(NonRetryable):
    """A handler with a `connection` ended the transaction of its step, or went on after an error in it.

    Or it returned amid a pipeline of psycopg. The step fails, without retries, and nothing that it did in
    the transaction is kept.
    """


class TransactionFailed(BaseException):
    """A statement that the engine itself sent, before or after a handler, failed in its transaction.

    It may succeed when the step runs again. The handler is not to blame, and no middleware may take it for
    an error of the handler. `has_begun` unless the handler never had the transaction.
    """

    def __init__(self, reason: str, *, has_begun: bool) -> None:
        super().__init__(reason)
        self.has_begun = has_begun


class StepNotSaved(Exception):
    """The transaction of a step is lost, and the handler's rows with it: the step is to run again.

    `has_begun` unless the handler never had it. No handler and no caller sees it.
    """

    def __init__(self, reason: str, *, has_begun: bool = True) -> None:
        super().__init__(reason)
        self.has_begun = has_begun
