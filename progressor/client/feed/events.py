"""The entries of the feed as readers get them, and the choice of them.

Rule: a payload is decoded where its reader runs, with the codec of its namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from progressor.app.projection import MOST_NAMES
from progressor.client.dispatch.dispatcher import Dispatcher
from progressor.client.feed.positions import position_of
from progressor.client.results import FeedEvent
from progressor.errors import InvalidRequest, NamespaceNotFound
from progressor.inputs import all_names_like, check_text
from progressor.model import FEED_KINDS, FEED_LETTERS, Event
from progressor.rights import check_patterns, fitting
from progressor.storage import FeedEntry, FeedFilter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LETTERS = {kind: letter for letter, kind in FEED_LETTERS.items()}


class EventReader:
    """Makes FeedEvents of entries, and checks what readers ask for."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def check_feeds(self, patterns: Iterable[str] | None, known: dict[str, bool]) -> tuple[str, ...]:
        """Return the names of the namespaces that fit by now; those that come later do so too.

        Raise NamespaceNotFound or InvalidRequest if nothing can ever come from them.
        """
        listed = ("*",) if patterns is None else tuple(patterns)
        for name in listed:
            if "*" not in name and name not in known:
                await self._dispatcher.check_namespace(name)
        found = fitting(listed, known)
        if found and not any(known[name] for name in found):
            raise InvalidRequest(
                f"namespace {found[0]!r} has no feed: make it with Namespace({found[0]!r}, feed=True)",
                field="namespaces",
            )
        return found

    async def told(self, entry: FeedEntry) -> FeedEvent:
        """Return an entry as a FeedEvent; Undecryptable, with a note of the position, if it cannot be."""
        kind = FEED_LETTERS[entry.letter]
        is_event, is_deleted = kind == "event", kind == "event" and entry.payload is None
        shown = position_of(entry.place)
        event = await self._event_of(entry, shown)
        return FeedEvent(
            position=shown,
            namespace=entry.namespace,
            process_id=entry.process_id,
            kind=kind,
            event_id=entry.n if is_event else None,
            name=event.name,
            payload=event.payload,
            metadata=event.metadata,
            timestamp=entry.timestamp,
            task_id=entry.task_id,
            id=_id_of(entry),
            is_deleted=is_deleted,
        )

    async def _event_of(self, entry: FeedEntry, position: str) -> Event:
        if entry.payload is None:
            return Event(None)
        try:
            wire = await self._dispatcher.wire_of(entry.namespace)
        except NamespaceNotFound:
            # It was retired; the feed has what was before.
            wire = self._dispatcher.wire
        try:
            return wire.event(Event(entry.payload, entry.metadata or {}, entry.n), entry)
        except Exception as error:
            # The reader never gets this event, so it could not go on behind it.
            error.add_note(f"the position of this event in the feed is {position}")
            raise


def _id_of(entry: FeedEntry) -> str:
    # The number of the process tells its lives apart, the time what a lost server knew of the same number.
    what = f"{entry.n}" if entry.letter == "e" else entry.letter
    time = (entry.timestamp - _EPOCH) // timedelta(microseconds=1)
    return f"{entry.place.epoch:x}-{entry.process_no:x}-{what}-{time:x}"


def filter_of(
    namespaces: Iterable[str] | None, events: Iterable[str] | None, kinds: Iterable[str]
) -> FeedFilter:
    """Return the choice of a reader; InvalidRequest names what is no choice."""
    letters = _letters_of(kinds)
    patterns = None if namespaces is None else _checked_patterns(namespaces)
    names = None if events is None else _checked_names(events)
    return FeedFilter(letters, patterns, names)


def _letters_of(kinds: Iterable[str]) -> list[str]:
    chosen = [kinds] if isinstance(kinds, str) else list(kinds)
    letters = {str(kind): letter for kind, letter in _LETTERS.items()}
    for kind in chosen:
        if kind not in letters:
            known = all_names_like(str(kind), FEED_KINDS)
            raise InvalidRequest(f"kinds must be some of {known}, not {kind!r:.80}", field="kinds")
    if not chosen:
        raise InvalidRequest("kinds must name one at least", field="kinds")
    return [letters[kind] for kind in chosen]


def _checked_names(events: Iterable[str]) -> list[str]:
    names = [events] if isinstance(events, str) else list(dict.fromkeys(events))
    if not 1 <= len(names) <= MOST_NAMES:
        raise InvalidRequest(f"events must be 1 to {MOST_NAMES} names", field="events")
    return [check_text("events", name) for name in names]


def _checked_patterns(namespaces: Iterable[str]) -> tuple[str, ...]:
    return check_patterns("namespaces", [namespaces] if isinstance(namespaces, str) else namespaces)
