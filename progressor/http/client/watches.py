"""The method of HttpClient that watches a process.

Rule: a stream that ends early is asked for again, behind the last change that came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from pydantic import TypeAdapter

from progressor.client.results import ProcessChange
from progressor.client.watches.positions import place_of
from progressor.errors import StorageUnavailable
from progressor.handlers.codec import decode
from progressor.http.client.decode import error_of, event_of
from progressor.http.client.exchange import Answer
from progressor.http.client.requests import process_url
from progressor.http.client.transport import RetryingTransport
from progressor.http.wire import headers
from progressor.http.wire.members import value_in

# Seconds; a server sends a comment each fifteen.
_SILENCE = 40.0
_CHANGE = TypeAdapter(ProcessChange)


class HttpWatching:
    """The method of HttpClient that watches a process."""

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
        return self._changes(f"{process_url(namespace, process_id)}/watch", after, state=state)

    async def _changes(self, url: str, after: str | None, *, state: bool) -> AsyncIterator[ProcessChange]:
        params = {"state": "true"} if state else {}
        patience = self._line.patience()
        while True:
            said = {"Accept": f"{headers.STREAM}, */*;q=0.1"}
            said |= {} if after is None else {headers.LAST_EVENT_ID: after}
            why = StorageUnavailable("the stream has ended")
            try:
                async with self._line.stream(url, _SILENCE, headers=said, params=params) as parts:
                    async for change in _changes_of(parts):
                        yield change
                        if change.status == "removed":
                            return
                        after, patience = change.position, self._line.patience()
            except StorageUnavailable as error:
                why = error
            if not await patience.pause():
                raise why


async def _changes_of(parts: AsyncIterator[bytes]) -> AsyncIterator[ProcessChange]:
    """Yield the changes of a stream; raise the error of its problem."""
    rest = b""
    async for part in parts:
        *whole, rest = (rest + part).split(b"\n\n")
        for each in whole:
            lines = [line.partition(b": ") for line in each.split(b"\n")]
            fields = {name: value for name, _, value in lines}
            if b"data" not in fields:
                continue
            if fields.get(b"event") == b"problem":
                raise error_of(Answer(500, {}, fields[b"data"]))
            yield _change(decode(fields[b"data"], field="change"))


def _change(facts: Mapping[str, Any]) -> ProcessChange:
    change = _CHANGE.validate_python({**facts, "events": (), "state": value_in(facts, "state")})
    return change._replace(events=tuple(event_of(each) for each in facts["events"]))
