"""Standbys: an address may lead to one for a while, and a standby may become the primary."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from progressor import Client, Engine, StorageUnavailable
from progressor.cli.main import app
from progressor.storage import migrations
from progressor.storage.doctor import examine
from progressor.storage.operations import Storage
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.queries.reads import Reads
from progressor.storage.values import Postpone
from tests.acceptance.conftest import MODES, Options
from tests.acceptance.support import NS, Act, Scripted, until
from tests.clusters import Address, Cluster, primary_and_standby
from tests.support import SECOND, check_invariants, init

Pair = tuple[Cluster, Cluster]


@contextmanager
def migrated() -> Iterator[Pair]:
    with primary_and_standby() as (primary, standby):
        migrations.upgrade(primary.dsn)
        yield primary, standby


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """A primary with the tables, and its standby, as all tests find and leave them."""
    with migrated() as pair:
        yield pair


@pytest.fixture
def doomed() -> Iterator[Pair]:
    """The same, to be broken."""
    with migrated() as pair:
        yield pair


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Options:
    return MODES[request.param]


async def test_a_fail_over(doomed: Pair, mode: Options) -> None:
    """Work goes on at the promoted standby: through an address that moves to it, and nobody helps."""
    primary, standby = doomed
    dispatcher = {name: value for name, value in mode.items() if name != "scan_interval"}
    async with Address(primary.port) as address:
        async with (
            Engine(address.dsn, [Scripted().namespace], **mode),
            Client(address.dsn, **dispatcher) as client,
        ):
            await client.start(NS, "p", Act(add=1))
            assert await client.call(NS, "p", "act", Act(add=1)) == 2
            await standby.follow(primary)
            # First the address moves, then the primary dies, and the standby is promoted last of all.
            address.leads_to = standby.port
            await asyncio.to_thread(primary.stop, "immediate")
            calling = asyncio.create_task(client.call(NS, "p", "act", Act(add=1)))
            await asyncio.to_thread(standby.promote)
            assert await calling == 3
            process = await until(
                lambda: client.get(NS, "p"), lambda process: process.state["balance"] == 3
            )
            assert process.last_event_id == 0
        check_invariants(standby.dsn)


async def test_an_address_that_leads_astray(pair: Pair, mode: Options) -> None:
    """While the address leads to a standby nothing is taken; when it is right again all goes on."""
    primary, standby = pair
    process_id = f"astray-{len(mode)}"
    await standby.follow(primary)
    async with Address(primary.port) as address:
        async with Engine(address.dsn, [Scripted().namespace], **mode) as engine:
            await engine.client.start(NS, process_id, Act(add=1))
            address.leads_to = standby.port
            # Who is connected stays where it is: all sessions are made anew.
            primary.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres' "
                "AND pid <> pg_backend_pid()"
            )
            with pytest.raises(StorageUnavailable):
                await engine.client.call(NS, process_id, "act", Act(add=1), idempotency_key="k", timeout=1)
            address.leads_to = primary.port
            assert await engine.client.call(NS, process_id, "act", Act(add=1), idempotency_key="k") == 2
        check_invariants(primary.dsn)


@pytest.mark.parametrize("keeps_state", [True, False], ids=["session", "stateless"])
async def test_sessions_with_a_standby_are_dropped(pair: Pair, keeps_state: bool) -> None:
    """Who insists on any server gets rid of its sessions with a standby as soon as one of them shows."""
    primary, standby = pair
    await standby.follow(primary)
    async with Address(standby.port) as address:
        connections = SessionPool(
            f"{address.dsn}?target_session_attrs=any", limit=4, session_state=keeps_state
        )
        patient = Storage(connections, patience=30 * SECOND)
        hasty = Storage(connections, patience=SECOND / 10)
        async with connections.acquire(), connections.acquire():
            pass
        with pytest.raises(StorageUnavailable, match=r"read-only|read-write"):
            await hasty.register_namespace(NS, options={}, schemas={})
        # Sessions that stood idle meanwhile do not last either.
        async with connections.acquire(), connections.acquire():
            address.leads_to = primary.port
        await patient.register_namespace(NS, options={}, schemas={})
        (made,) = await patient.prepare_init([init(f"new-{keeps_state}", namespace=NS, worker_id=None)])
        assert isinstance(made, Postpone)
        await connections.close()


async def test_stateless_reads_refuse_a_standby(pair: Pair) -> None:
    """A pooler may lend a session with a standby: what is read there may be old, so it is not read."""
    _, standby = pair
    reads = Reads(f"{standby.dsn}?target_session_attrs=any", patience=SECOND / 10, session_state=False)
    with pytest.raises(StorageUnavailable, match="recovery"):
        await reads.process(NS, "p")
    await reads.close()


async def test_starting_at_a_standby(pair: Pair) -> None:
    """Clients, engines and migrations say that it is one; the doctor may look."""
    primary, standby = pair
    await standby.follow(primary)
    for act in (migrations.check, migrations.upgrade):
        with pytest.raises(StorageUnavailable, match="hot standby"):
            act(standby.dsn)
    with pytest.raises(StorageUnavailable, match="hot standby"):
        async with Client(standby.dsn):
            pass
    assert examine(standby.dsn).is_clean


@pytest.mark.parametrize("stated", ["", "?target_session_attrs=any"], ids=["unstated", "any"])
async def test_the_doctor_at_a_standby(pair: Pair, stated: str) -> None:
    """The command looks at all of it, or quickly, and does not look for sessions that it cannot have."""
    primary, standby = pair
    await standby.follow(primary)
    for options in ([], ["--quick"]):
        command = ["doctor", "--database-url", f"{standby.dsn}{stated}", *options]
        done = await asyncio.to_thread(CliRunner().invoke, app, command)
        assert (done.exit_code, done.stderr) == (0, "")
        assert "invariants hold" in done.stdout


async def test_a_list_of_servers(pair: Pair) -> None:
    """Of several hosts the primary is taken, wherever it stands in the list."""
    primary, standby = pair
    hosts = f"postgresql://postgres@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/postgres"
    async with Engine(hosts, [Scripted().namespace]) as engine:
        assert await engine.client.start(NS, "listed", Act(add=1)) == 1
