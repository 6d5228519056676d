"""Whatever a client is given: a clear error that names the field, or a correct round trip."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from progressor import (
    HistoryRange,
    InvalidRequest,
    NamespaceNotFound,
    ProcessAlreadyExists,
    ProcessNotFound,
    ProgressorError,
    SyncClient,
)
from progressor.http import HttpClient
from tests.bad_input import draws
from tests.bad_input.world import NS, World, a_world, fresh
from tests.model.profiles import profile

QUICK = profile(quick=25, deep=1500, steps=1)
FEW = profile(quick=15, deep=500, steps=1)

FIELDS = {"namespace", "process_id", "name", "args", "context", "metadata", "idempotency_key", "timeout"}


@pytest.fixture
def world(dsn: str) -> Iterator[World]:
    with a_world(dsn) as world:
        yield world


def refused(outcome: Any, fields: set[str]) -> bool:
    """Whether the input was refused, by an error that names one of these fields."""
    if not isinstance(outcome, InvalidRequest):
        return False
    assert outcome.field is not None, outcome
    assert outcome.field.split(".")[0].split("[")[0] in fields, outcome
    assert len(str(outcome)) < 2_500, "an error that nobody can read"
    return True


def unexpected(outcome: Any, *expected: type[Exception]) -> bool:
    """Whether it is an exception that no input may cause."""
    return isinstance(outcome, Exception) and not isinstance(outcome, expected)


@QUICK
@given(
    namespace=st.just(NS) | draws.ids | draws.wrong_types,
    process_id=draws.ids | draws.wrong_types,
    args=draws.values,
    key=draws.keys,
    context=draws.values,
    metadata=draws.metadata,
    timeout=draws.timeouts,
)
def test_start(
    world: World,
    namespace: Any,
    process_id: Any,
    args: Any,
    key: Any,
    context: Any,
    metadata: Any,
    timeout: Any,
) -> None:
    """Any start is refused by name, or runs."""
    outcome = world.run(
        world.amid_neighbours(
            lambda client: client.start(
                namespace,
                process_id,
                args,
                idempotency_key=key,
                context=context,
                metadata=metadata,
                timeout=timeout,
            )
        )
    )
    if not refused(outcome, FIELDS):
        assert not unexpected(outcome, ProcessAlreadyExists, NamespaceNotFound), repr(outcome)


@QUICK
@given(
    name=st.sampled_from(["give_back", "keep"]) | draws.texts | draws.wrong_types,
    args=draws.values,
    context=draws.values,
    key=draws.keys,
    verb=st.sampled_from(["call", "notify"]),
)
def test_call(world: World, name: Any, args: Any, context: Any, key: Any, verb: str) -> None:
    """Any call is refused by name, or runs; the process lives on."""

    async def ask(client: Any) -> Any:
        one = client.process(NS, fresh())
        await one.start()
        try:
            return await getattr(one, verb)(name, args, context=context, idempotency_key=key)
        finally:
            assert await one.call("give_back", "alive") == {"args": "alive", "context": None}

    outcome = world.run(world.amid_neighbours(ask))
    if not refused(outcome, FIELDS):
        assert not unexpected(outcome), repr(outcome)


@QUICK
@given(args=draws.exact, context=draws.exact, state=draws.exact)
def test_round_trip(world: World, args: Any, context: Any, state: Any) -> None:
    """JSON values come back as they were sent: in answers, contexts, states, events and traces."""

    async def ask(client: Any) -> Any:
        one = client.process(NS, fresh())
        assert await one.start(args) == args
        answer = await one.call("give_back", args, context=context)
        await one.call("keep", state)
        process = await one.get()
        assert process.state == state or (process.state, state) == (0, None)
        assert [event.payload for event in process.history] == [{"value": state}]
        init, call, _ = await one.trace()
        assert (init.args, call.args, call.context) == (args, args, context)
        return answer

    assert world.run(world.amid_neighbours(ask)) == {"args": args, "context": context}


@QUICK
@given(
    process_id=draws.ids | st.builds(fresh),
    state=draws.values,
    events=st.lists(
        draws.values
        | st.fixed_dictionaries({"name": draws.texts | draws.wrong_types, "payload": draws.values})
        | st.fixed_dictionaries(
            {"payload": st.just(1), "timestamp": draws.moments, "metadata": draws.metadata}
        ),
        max_size=3,
    )
    | draws.wrong_types,
    metadata=draws.metadata,
    action=draws.wrong_types,
    status=st.sampled_from(["running", "error"]) | draws.wrong_types,
)
def test_put(
    world: World, process_id: Any, state: Any, events: Any, metadata: Any, action: Any, status: Any
) -> None:
    """Any import is refused by name, or can be read."""

    async def ask(client: Any) -> Any:
        await client.put(
            NS, process_id, state=state, events=events, metadata=metadata, action=action, status=status
        )
        process = await client.get(NS, process_id)
        _ = (process.metadata, process.history)
        # Bytes are taken as they are, for raw handlers.
        _ = process.aux_state if isinstance(state, bytes) else process.state
        return process

    outcome = world.run(world.amid_neighbours(ask))
    if not refused(outcome, {"process_id", "state", "events", "metadata", "action", "status"}):
        assert not unexpected(outcome, ProcessAlreadyExists), repr(outcome)


@QUICK
@given(
    namespace=st.none() | draws.ids | draws.wrong_types,
    status=st.sampled_from(["init", "error"]) | draws.texts | draws.wrong_types,
    metadata=draws.metadata,
    after=draws.moments,
    before=draws.moments,
    limit=draws.counts,
    cursor=draws.texts | draws.wrong_types | st.sampled_from(draws.CURSORS),
)
def test_search(
    world: World,
    namespace: Any,
    status: Any,
    metadata: Any,
    after: Any,
    before: Any,
    limit: Any,
    cursor: Any,
) -> None:
    """Any search is refused by name, of a namespace that nobody knows, or answers."""
    wanted = {
        "namespace": namespace,
        "status": status,
        "metadata": metadata,
        "created_after": after,
        "created_before": before,
        "limit": limit,
        "cursor": cursor,
    }
    # One thing wrong at a time finds more than all at once.
    for name, value in wanted.items():
        outcome = world.run(world.amid_neighbours(lambda client, n=name, v=value: client.search(**{n: v})))
        if not refused(outcome, set(wanted)):
            assert not unexpected(outcome, NamespaceNotFound), (name, repr(outcome))


@FEW
@given(
    process_id=st.just("there") | draws.ids | draws.wrong_types,
    after=draws.counts,
    limit=draws.counts,
    offset=draws.counts,
    timeout=draws.timeouts,
)
def test_reads(world: World, process_id: Any, after: Any, limit: Any, offset: Any, timeout: Any) -> None:
    """Any get, trace or remove is refused by name, or answers."""

    async def ask(client: Any) -> list[Any]:
        outcomes: list[Any] = []
        for read in (
            lambda: client.trace(NS, process_id, after=after, limit=limit),
            lambda: client.get(NS, process_id, range=HistoryRange(offset, limit), timeout=timeout),
            lambda: client.get(NS, process_id, range=HistoryRange(offset, limit, "backward")),
            lambda: client.simple_repair(NS, process_id, timeout=timeout),
            lambda: client.remove(NS, process_id),
        ):
            try:
                outcomes.append(await read())
            except Exception as error:  # noqa: BLE001 - looked at below
                outcomes.append(error)
        return outcomes

    async def there(client: Any) -> list[Any]:
        await client.put(NS, "there", events=[{"name": "a"}, {"name": "b"}])
        try:
            return await ask(client)
        finally:
            if process_id != "there":
                await client.remove(NS, "there")

    for outcome in world.run(world.amid_neighbours(there)):
        if not refused(outcome, {"process_id", "after", "limit", "offset", "timeout"}):
            assert not unexpected(outcome, ProcessNotFound, ProgressorError), repr(outcome)


@FEW
@given(args=draws.values, key=draws.keys, metadata=draws.metadata, process_id=draws.ids | st.builds(fresh))
def test_the_blocking_client(
    world: World, sync_client: SyncClient, args: Any, key: Any, metadata: Any, process_id: Any
) -> None:
    """The blocking client refuses and runs the same."""

    async def ask(_client: Any) -> Any:
        return await world.in_thread(
            lambda: sync_client.start(NS, process_id, args, idempotency_key=key, metadata=metadata)
        )

    outcome = world.run(world.amid_neighbours(ask))
    if not refused(outcome, FIELDS):
        assert not unexpected(outcome, ProcessAlreadyExists), repr(outcome)


@pytest.fixture
def sync_client(world: World) -> Iterator[SyncClient]:
    with SyncClient(world.dsn) as client:
        yield client


NO_TIMEOUTS = [math.inf, -math.inf, math.nan, 0, -1, 10**400, 1e308, timedelta.max, timedelta(0), True, "1"]


@pytest.mark.parametrize("timeout", NO_TIMEOUTS)
def test_a_timeout_that_no_clock_can_hold(world: World, sync_client: SyncClient, timeout: Any) -> None:
    """Every client refuses it by name, before anything is sent."""

    async def over_http() -> None:
        async with HttpClient("http://127.0.0.1:1") as client:
            await client.start(NS, fresh(), timeout=timeout)

    outcomes = [
        world.run(world.amid_neighbours(lambda client: client.start(NS, fresh(), timeout=timeout))),
        world.run(world.amid_neighbours(lambda client: client.get(NS, fresh(), timeout=timeout))),
        world.run(world.amid_neighbours(lambda _client: over_http())),
    ]
    assert [refused(each, {"timeout"}) for each in outcomes] == [True] * 3
    for ask in (
        lambda: sync_client.start(NS, fresh(), timeout=timeout),
        lambda: HttpClient("http://a", timeout=timeout),
    ):
        with pytest.raises(InvalidRequest) as caught:
            ask()
        assert caught.value.field == "timeout"


@pytest.mark.parametrize("context", [b"", b"[", b"\xff\xfe"])
def test_bytes_that_are_no_json(world: World, context: bytes) -> None:
    """Bytes are taken to be encoded already; if not, the request is refused where they are read."""

    async def ask(client: Any) -> list[str | None]:
        one = client.process(NS, fresh())
        await one.start()
        fields = []
        for wrong in ({"args": context}, {"context": context}):
            with pytest.raises(InvalidRequest) as caught:
                await one.call("give_back", **wrong)
            fields.append(caught.value.field)
        assert await one.call("give_back", "alive") == {"args": "alive", "context": None}
        return fields

    assert world.run(world.amid_neighbours(ask)) == ["args", "context"]
