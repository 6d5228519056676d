"""The audit: acts of operators, noted in the transactions that they are.

Rule: there is no entry without its act, and no act without its entry: both commit together. An entry is
inserted and never changed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from progressor.acts import OF_CALLERS, Act, AuditEntry, AuditPage, Deed, as_line
from progressor.errors import InvalidRequest
from progressor.inputs import LAST_ID, check_count, check_moment
from progressor.rights import like
from progressor.storage.postgres.arrays import bigints, columns_of, texts
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.transactions import Transactions
from progressor.storage.rows import record_of
from progressor.storage.statements import Params, Results, Transaction
from progressor.storage.values import Request


class _LastEntry(NamedTuple):
    """The place of an entry in the order of the audit."""

    acted_at: datetime
    act_id: int


_NEWEST = _LastEntry(datetime.fromisoformat("9999-12-30T00:00:00+00:00"), 0)


class Audited(Transactions):
    """The operations that note acts, and read them."""

    def _acted(
        self,
        name: str,
        statements: Transaction,
        act: Act | None,
        deed: Callable[[Results], Deed | None],
        *,
        now: datetime | None = None,
    ) -> Coroutine[Any, Any, Results]:
        """Run these as one transaction, with the entry of the act; None of `deed`: it was not done.

        Without an act, which is for callers that are no operators, nothing is noted.
        """
        return self._run(name, lambda session, _again: acted(session, statements, act, deed, now=now))

    async def _done(
        self, name: str, params: Params, act: Act | None, deed: Deed, *, now: datetime | None = None
    ) -> bool:
        """Run one statement, whose act is done if it returns a row; return whether it was."""
        results = await self._acted(
            name, {name: params}, act, lambda found: deed if found[name] else None, now=now
        )
        return bool(results[name])

    async def audit(
        self,
        *,
        namespace: str | None = None,
        process_id: str | None = None,
        verb: str | None = None,
        since: datetime | None = None,
        ago: timedelta | None = None,
        cursor: str | None = None,
        namespaces: Sequence[str] | None = None,
        limit: int,
        now: datetime | None = None,
    ) -> AuditPage:
        """Return a page of entries, newest first, behind a cursor.

        `namespaces` are patterns: entries of others are left out, and those of none. InvalidRequest for a
        cursor that was not given out.
        """
        before = _NEWEST if cursor is None else _read_cursor(cursor)
        name = "audit" if namespace is None or process_id is None else "audit_of_process"
        params = {
            "namespace": namespace,
            "process_id": process_id,
            "verb": verb,
            "since": since,
            "ago": ago,
            "before_at": before.acted_at,
            "before_id": before.act_id,
            "namespaces": None if namespaces is None else texts([like(each) for each in namespaces]),
            "limit": limit + 1,
            "now": now,
        }
        rows = await self._rows(name, **params)
        found = [record_of(AuditEntry, row) for row in rows[:limit]]
        if len(rows) <= limit:
            return AuditPage(found, None)
        return AuditPage(found, _write_cursor(rows[limit - 1]["acted_at"], rows[limit - 1]["act_no"]))


async def acted(
    session: Session,
    statements: Transaction,
    act: Act | None,
    deed: Callable[[Results], Deed | None],
    *,
    now: datetime | None = None,
) -> Results:
    """Run these as one transaction, with the entry of the act if it was done; return their rows."""
    if act is None:
        return await session.transact(statements)
    async with session.transaction():
        results = await session.transact(statements)
        done = deed(results)
        if done is not None:
            await session.transact(noting(act, done, now=now))
    return results


def noting(act: Act | None, deed: Deed, *, now: datetime | None = None) -> Transaction:
    """Return the statement that notes an act; none without one."""
    return {} if act is None else noting_all([(act, deed)], now)


def noting_all(done: Sequence[tuple[Act, Deed]], now: datetime | None) -> Transaction:
    """Return the statement that notes acts, of each what was done."""
    return {"note_acts": _columns([(act, deed, None) for act, deed in done], now)}


def noting_requests(requests: Sequence[Request], now: datetime | None) -> Transaction:
    """Return the statement that notes requests which are acts, behind the one that makes their tasks.

    None if there is no act among them, as of all that callers and handlers ask.
    """
    if all(request.act is None for request in requests):
        return {}
    noted = [(request.act, _deed_of(request), request.idempotency_key) for request in requests]
    return {"note_requests": _columns(noted, now)}


def _deed_of(request: Request) -> Deed:
    """Return what a request does: with the task that it runs again, or the name of a call."""
    subject = None
    if request.redoes is not None:
        subject = f"task {request.redoes.task_id}"
    elif request.act is not None and request.act.verb in OF_CALLERS.values():
        subject = as_line(request.name or "")
    return Deed(request.namespace, request.process_id, subject)


def _columns(noted: Sequence[tuple[Act | None, Deed, str | None]], now: datetime | None) -> Params:
    acts = [act for act, _, _ in noted]
    deeds = [deed for _, deed, _ in noted]
    return {
        "now": now,
        "act_id": bigints([None if act is None else act.act_id for act in acts]),
        **{
            name: texts([None if act is None else getattr(act, name) for act in acts])
            for name in ("verb", "actor", "way", "origin", "reason")
        },
        **columns_of(texts, deeds, *Deed._fields),
        "idempotency_key": texts([key for _, _, key in noted]),
    }


def _write_cursor(at: datetime, act_id: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([at.isoformat(), act_id]).encode()).decode()


def _read_cursor(cursor: str) -> _LastEntry:
    try:
        at, act_id = json.loads(base64.urlsafe_b64decode(cursor))
        return _LastEntry(
            check_moment("at", datetime.fromisoformat(at)),
            check_count("act_id", act_id, least=0, most=LAST_ID),
        )
    except (ValueError, TypeError, RecursionError):
        raise InvalidRequest("cursor is not one that audit gave out", field="cursor") from None
