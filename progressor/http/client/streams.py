"""The methods of HttpClient that read streams: of one process, and of the feed.

Rule: a stream that ends early is asked for again, behind the last position that came.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from progressor.client.results import FeedEvent, ProcessChange
from progressor.client.watches.positions import place_of
from progressor.errors import InvalidRequest, StorageUnavailable, Undecryptable
from progressor.handlers.codec import decode
from progressor.http.client.decode import error_of, event_of
from progressor.http.client.exchange import Answer
from progressor.http.client.requests import process_url
from progressor.http.client.transport import RetryingTransport
from progressor.http.wire import headers
from progressor.http.wire.members import value_in
from progressor.http.wire.paths import FEED
from progressor.inputs import check_moment
from progressor.model import FeedKind

# Seconds; a server sends a sign of life each fifteen.
_SILENCE = 40.0
_CHANGE, _FEED_EVENT = TypeAdapter(ProcessChange), TypeAdapter(FeedEvent)


class HttpStreams:
    """The methods of HttpClient that read streams."""

    _line: RetryingTransport

    def watch(
        self, namespace: str, process_id: str, *, after: str | None = None, state: bool = False
    ) -> AsyncIterator[ProcessChange]:
        """Return a process as its steps are committed: `async for change in client.watch(…): …`.

        It begins with the process as it is, without events; with `after`, the position of a change, with
        what has changed since. It ends behind the change whose status is `removed`. A stream that is lost
        is asked for again, for as long as `timeout` of the client; then the loop raises StorageUnavailable.
        """
        place_of(namespace, process_id, after)
        params = {"state": "true"} if state else {}
        return self._changes(f"{process_url(namespace, process_id)}/watch", params, after)

    def subscribe(
        self,
        *,
        namespaces: Iterable[str] | None = None,
        events: Iterable[str] | None = None,
        kinds: Iterable[FeedKind] = ("event",),
        after: str | datetime = "latest",
    ) -> AsyncIterator[FeedEvent]:
        """Return what processes do, as it is committed: `async for event in client.subscribe(): …`.

        The choice is that of `Client.subscribe`; without `namespaces` it is all that the token sees. The
        loop raises what `Client.subscribe` raises; InvalidRequest for bad input and for a token without the
        rights, too. A stream that is lost is asked for again, behind the last event that came, for as long
        as `timeout` of the client; then the loop raises StorageUnavailable.
        """
        start = check_moment("after", after).isoformat() if isinstance(after, datetime) else after
        chosen = {"namespaces": namespaces, "events": events, "kinds": kinds}
        listed = {name: _listed(name, each) for name, each in chosen.items() if each is not None}
        return self._followed({"after": start, **listed})

    async def _changes(
        self, url: str, params: Mapping[str, Any], after: str | None
    ) -> AsyncIterator[ProcessChange]:
        async with aclosing(self._told(url, params, after)) as told:
            async for facts in told:
                change = _change(facts)
                yield change
                if change.status == "removed":
                    return

    async def _followed(self, params: Mapping[str, Any]) -> AsyncIterator[FeedEvent]:
        async with aclosing(self._told(FEED, params)) as told:
            async for facts in told:
                yield _FEED_EVENT.validate_python(_fields_of(FeedEvent, facts, "payload"))

    async def _told(
        self, url: str, params: Mapping[str, Any], after: str | None = None
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield what the events of a stream hold, for as long as it can be had; raise why it cannot."""
        patience = self._line.patience()
        while True:
            said = {"Accept": f"{headers.STREAM}, */*;q=0.1"}
            said |= {} if after is None else {headers.LAST_EVENT_ID: after}
            why = StorageUnavailable("the stream has ended")
            try:
                async with self._line.stream(url, _SILENCE, headers=said, params=params) as parts:
                    async for fields in _blocks_of(parts):
                        facts = _facts_in(fields)
                        if b"retry" not in fields:
                            # It lives: should it be lost, it is asked for again for as long as a new one.
                            patience = self._line.patience()
                        after = fields[b"id"].decode() if b"id" in fields else after
                        if facts is not None:
                            yield facts
            except StorageUnavailable as error:
                why = error
            if self._line.is_closed or not await patience.pause():
                raise why from None


def _listed(field: str, names: Iterable[str]) -> list[str]:
    """Return names as a list; InvalidRequest if there is none, which a query could not say."""
    listed = [names] if isinstance(names, str) else list(dict.fromkeys(names))
    if not listed:
        raise InvalidRequest(f"{field} must name one at least", field=field)
    return listed


async def _blocks_of(parts: AsyncIterator[bytes]) -> AsyncIterator[Mapping[bytes, bytes]]:
    """Yield the blocks of a stream by their fields: events, and signs of life."""
    begun: list[bytes] = []
    async for part in parts:
        # A large event comes in many parts: they are joined once.
        last = begun[-1][-1:] if begun else b""
        if b"\n\n" not in last + part:
            begun += [part] if part else []
            continue
        *whole, rest = b"".join([*begun, part]).split(b"\n\n")
        begun = [rest] if rest else []
        for each in whole:
            lines = [line.partition(b": ") for line in each.split(b"\n")]
            yield {name: value for name, _, value in lines}


def _facts_in(fields: Mapping[bytes, bytes]) -> Mapping[str, Any] | None:
    """Return what a block holds, None if it is no event; raise the error of a problem."""
    if b"data" not in fields:
        return None
    facts: Mapping[str, Any] = decode(fields[b"data"], field="event")
    if fields.get(b"event") != b"problem":
        return facts
    error = error_of(Answer(facts["status"], {}, fields[b"data"]))
    if isinstance(error, Undecryptable) and "position" in facts:
        error.add_note(f"the position of this event in the feed is {facts['position']}")
    raise error


def _fields_of(
    noun: type[FeedEvent | ProcessChange], facts: Mapping[str, Any], value: str
) -> dict[str, Any]:
    """Return the facts that a noun has, of which one is a value; a newer server may tell more."""
    return {name: facts[name] for name in noun._fields if name in facts} | {value: value_in(facts, value)}


def _change(facts: Mapping[str, Any]) -> ProcessChange:
    change = _CHANGE.validate_python({**_fields_of(ProcessChange, facts, "state"), "events": ()})
    return change._replace(events=tuple(event_of(each) for each in facts["events"]))
