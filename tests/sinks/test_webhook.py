"""Webhooks are signed and in order, go only where they may, and nothing of a secret is ever shown."""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import re
import socket
import ssl
import subprocess
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError
from standardwebhooks import Webhook, WebhookVerificationError

from progressor import FeedEvent, InvalidRequest, NonRetryable
from progressor.sinks import addresses, webhook
from progressor.sinks.addresses import is_public
from progressor.sinks.cloudevents import envelope
from progressor.sinks.failures import SinkUnreachable
from progressor.sinks.signing import WebhookSigner
from progressor.sinks.webhook import WebhookOptions, WebhookRefused, WebhookSink
from tests.sinks.made import made
from tests.sinks.receiver import Answer, Received, Receiver, receiving, status

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"
OK = status(200)


def _sink(
    to: Receiver, *, path: str = "/hooks", secrets: list[str] | None = None, **options: Any
) -> WebhookSink:
    url = f"http://127.0.0.1:{to.port}{path}"
    return WebhookSink(url, secrets or [SECRET], **{"allow_private": True} | options)


async def _sent(sink: WebhookSink, *events: FeedEvent) -> None:
    """Send and close, within the time of a test."""
    try:
        async with asyncio.timeout(30):
            await sink.send(events)
    finally:
        await sink.close()


def _failing(answer: Answer, **options: Any) -> Callable[[], Any]:
    """A function that sends an event to such a receiver, and returns what the sink raised."""

    async def fail() -> BaseException:
        async with receiving(answer) as to:
            with pytest.raises((SinkUnreachable, NonRetryable)) as raised:
                await _sent(_sink(to, **options), made())
        return raised.value

    return fail


# Signatures


def test_the_vector_of_the_specification() -> None:
    """The same id, time, body and secret as its libraries are tested with have the same signature."""
    headers = WebhookSigner([SECRET]).headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_a_receiver_verifies_what_it_gets() -> None:
    """With either secret of a rotation, by the library of the specification; the body is the envelope."""
    event = made(process_id="zoë/ä b", payload={"text": "€ \u2028"})
    async with receiving(OK) as to:
        await _sent(_sink(to, path="/hooks?x=1", secrets=[SECRET, OTHER]), event)
    (got,) = to.received
    for secret in (SECRET, OTHER):
        assert Webhook(secret).verify(got.body, got.headers) == envelope(event)
    assert got.headers["webhook-id"] == event.id == got.envelope["id"]
    assert got.headers["content-type"] == "application/cloudevents+json"
    assert (got.target, got.headers["host"]) == ("/hooks?x=1", f"127.0.0.1:{to.port}")
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(got.body + b" ", got.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER[:-8] + "AAAAAAA=").verify(got.body, got.headers)


async def test_an_event_that_is_sent_again_has_its_id_and_body() -> None:
    """A receiver knows it by them, whatever the time of the request."""
    event = made()
    async with receiving(OK) as to:
        sink = _sink(to)
        await sink.send([event])
        await _sent(sink, event)
    first, again = to.received
    assert first.body == again.body
    assert first.headers["webhook-id"] == again.headers["webhook-id"]
    assert to.connections == 1


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", SECRET.removeprefix("whsec_"), "whsec_%%%", "whsec_aGk=", f"whsec_{'A' * 100}", 7, None],
)
def test_a_secret_that_is_none_is_not_shown(secret: Any) -> None:
    """The error names which one it is, and the rule."""
    with pytest.raises(
        InvalidRequest, match=r"secrets\.1 must be whsec_ and the base64 of 24 to 64 bytes"
    ) as raised:
        WebhookSink("https://example.com", [SECRET, secret])
    assert raised.value.field == "secrets.1"
    assert str(secret).removeprefix("whsec_") in ("", "7", "None") or str(secret) not in str(raised.value)


@pytest.mark.parametrize("secrets", [[], [SECRET] * 11, SECRET])
def test_there_is_a_secret(secrets: Any) -> None:
    """Nothing is sent that is not signed; a text is no list of its characters."""
    with pytest.raises(InvalidRequest, match="secrets must be"):
        WebhookSink("https://example.com", secrets)


# Answers


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
async def test_these_are_accepted(code: int) -> None:
    """All that begin with 2; one of 204 has no body."""

    async def no_body(_received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {code} So\r\n\r\n".encode())

    async with receiving(no_body if code == 204 else status(code)) as to:
        sink, event = _sink(to), made()
        await sink.send([event])
        await _sent(sink, event)
    assert len(to.received) == 2


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504, 599])
async def test_these_are_sent_again(code: int) -> None:
    """They are about the receiver, and not about the event."""
    error = await _failing(status(code))()
    assert isinstance(error, SinkUnreachable)
    assert re.fullmatch(rf"http://127\.0\.0\.1:\d+ answered with status {code}", str(error))
    assert error.retry_after is None


@pytest.mark.parametrize("code", [300, 304, 400, 401, 403, 404, 409, 410, 413, 422])
async def test_these_are_refused_for_good(code: int) -> None:
    """The error names the event and the status, and says why a redirect is one."""
    error = await _failing(status(code))()
    assert isinstance(error, WebhookRefused)
    assert error.status == code
    assert f"refused the event at position {error.position} with status {code}" in str(error)
    assert ("redirects are not followed" in str(error)) is (code < 400)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(code: int) -> None:
    """Nothing is sent to where it leads."""
    async with receiving(OK) as within:
        error = await _failing(status(code, f"Location: http://127.0.0.1:{within.port}/secrets"))()
    assert isinstance(error, WebhookRefused)
    assert within.connections == 0


_DATE = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (["Retry-After: 120"], 120),
        (["Retry-After: 0"], 0),
        (["Retry-After: " + "9" * 5000], 86_400),
        (
            [
                f"Retry-After: {format_datetime(_DATE + timedelta(seconds=90))}",
                f"Date: {format_datetime(_DATE)}",
            ],
            90,
        ),
        ([f"Retry-After: {format_datetime(_DATE)}", f"Date: {format_datetime(_DATE + timedelta(1))}"], 0),
        ([f"Retry-After: {format_datetime(_DATE)}"], None),
        (["Retry-After: soon"], None),
        (["Retry-After: -5"], None),
        (["Retry-After: Wed, 01 Jan 2020 00:00:00", f"Date: {format_datetime(_DATE)}"], None),
        (["Retry-After:"], None),
    ],
)
@pytest.mark.parametrize("code", [429, 503])
async def test_a_receiver_that_asks_for_time_gets_it(
    headers: list[str], expected: int | None, code: int
) -> None:
    """In seconds, or until a time of its own clock; a day at most."""
    error = await _failing(status(code, *headers))()
    assert isinstance(error, SinkUnreachable)
    assert error.retry_after == (None if expected is None else timedelta(seconds=expected))


async def test_the_longest_time_of_several_is_raised() -> None:
    """Also before a refusal, which the next try will find again."""

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        await everybody.wait()
        code, *headers = received.envelope["data"]
        await status(code, *headers)(received, writer)

    everybody = asyncio.Barrier(3)
    asked: list[list[Any]] = [[503, "Retry-After: 5"], [503, "Retry-After: 7"], [410]]
    async with receiving(answer) as to:
        with pytest.raises(SinkUnreachable) as raised:
            await _sent(_sink(to), *(made(f"p-{data}", payload=data) for data in asked))
    assert raised.value.retry_after == timedelta(seconds=7)


async def _closes_at_once(_received: Received, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _closes_within_the_head(_received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 O")
    writer.close()


async def _is_no_http(_received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    writer.close()


async def _has_an_endless_head(_received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nx: ")
    while not writer.is_closing():
        writer.write(b"x" * 65_536)
        await writer.drain()


@pytest.mark.parametrize(
    "answer", [_closes_at_once, _closes_within_the_head, _is_no_http, _has_an_endless_head]
)
async def test_no_answer_is_sent_again(answer: Answer) -> None:
    """The error says of which kind, and has no more of the URL than the host."""
    error = await _failing(answer)()
    assert isinstance(error, SinkUnreachable)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+ cannot be reached: RemoteProtocolError", str(error))


async def test_nobody_there_is_sent_again() -> None:
    """A connection that is refused."""
    async with receiving(OK) as to:
        pass
    with pytest.raises(
        SinkUnreachable, match=rf"http://127.0.0.1:{to.port} cannot be reached: ConnectError"
    ):
        await _sent(_sink(to), made())


async def _says_nothing(_received: Received, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _drips(_received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for number in itertools.count():
        writer.write(f"x-{number % 10}: y\r\n".encode())
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("answer", [_says_nothing, _drips])
async def test_an_answer_has_a_time(answer: Answer) -> None:
    """In all: one who sends a byte now and then has no more of it."""
    error = await _failing(answer, timeout=timedelta(seconds=0.3))()
    assert isinstance(error, SinkUnreachable)
    assert str(error).endswith("did not answer within 0.3 seconds")


async def test_the_body_of_an_answer_does_not_count() -> None:
    """Accepted is accepted, if it breaks off or stops."""

    async def breaks_off(_received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")
        writer.close()

    async def stops(_received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")
        await asyncio.Event().wait()

    for answer in (breaks_off, stops):
        async with receiving(answer) as to:
            await _sent(_sink(to), made())
        assert len(to.received) == 1


async def test_a_body_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some of it, however fast it comes: the connection is closed, and the event accepted."""
    left = asyncio.Event()
    monkeypatch.setattr(webhook, "_LONGEST_READ", 3600)

    async def never_ends(_received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                await writer.drain()
        except ConnectionError:
            left.set()
            raise

    async with receiving(never_ends) as to:
        sink = _sink(to)
        async with asyncio.timeout(30):
            await sink.send([made()])
            await left.wait()
        await sink.close()
    assert len(to.received) == 1


async def test_a_payload_without_json_is_refused() -> None:
    """Nothing is sent."""
    async with receiving(OK) as to:
        with pytest.raises(NonRetryable, match="payload has no JSON form"):
            await _sent(_sink(to), made(payload=object()))
    assert to.received == []


async def test_nothing_to_send() -> None:
    """Nobody is asked for, and nothing is open."""
    sink = WebhookSink("https://no.such.host.invalid", [SECRET])
    await _sent(sink)
    await sink.close()


# Order


_processes = st.lists(st.sampled_from("abcdefgh"), max_size=30)


@settings(max_examples=25, deadline=None)
@given(_processes, st.integers(1, 4), st.none() | st.integers(0, 29))
def test_events_of_a_process_come_in_their_order(of: list[str], parallel: int, failing: int | None) -> None:
    """Each begins once the one before it was accepted; behind one that failed none of its process comes."""
    events = [made(process_id) for process_id in of]
    refused = None if failing is None or failing >= len(events) else events[failing]
    under_way: set[str] = set()
    most = 0

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal most
        told = received.envelope
        assert told["subject"] not in under_way
        under_way.add(told["subject"])
        most = max(most, len(under_way))
        await asyncio.sleep(0)
        under_way.discard(told["subject"])
        await status(400 if refused is not None and told["id"] == refused.id else 200)(received, writer)

    async def run() -> list[Received]:
        async with receiving(answer) as to:
            sink = _sink(to, parallel=parallel)
            if refused is None:
                await _sent(sink, *events)
            else:
                with pytest.raises(WebhookRefused) as raised:
                    await _sent(sink, *events)
                assert raised.value.position == refused.position
            return to.received

    got, expected = defaultdict(list), defaultdict(list)
    for received in asyncio.run(run()):
        got[received.envelope["subject"]].append(received.envelope["id"])
    for event in events:
        expected[event.process_id].append(event.id)
    assert most <= parallel
    for process_id, ids in got.items():
        assert ids == expected[process_id][: len(ids)]
        assert refused is None or refused.id not in ids[:-1]
    assert refused is not None or got == expected


async def test_events_of_different_processes_go_at_once() -> None:
    """As many as are allowed: here each answer waits for two others."""
    three, under_way, most = asyncio.Barrier(3), 0, 0

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await three.wait()
        under_way -= 1
        await OK(received, writer)

    async with receiving(answer) as to:
        await _sent(_sink(to, parallel=3), *(made(f"p-{number}") for number in range(9)))
    assert (most, len(to.received), to.connections) == (3, 9, 3)


async def test_a_batch_that_is_cancelled_leaves_nothing_open() -> None:
    """The sink is of use afterwards."""
    came, answers = asyncio.Event(), iter([_says_nothing, OK])

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        came.set()
        await next(answers)(received, writer)

    async with receiving(answer) as to:
        sink = _sink(to)
        sending = asyncio.create_task(sink.send([made()]))
        await came.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await _sent(sink, made())
    assert len(to.received) == 2


# Addresses


_NOT_PUBLIC = """
    0.0.0.0 10.1.2.3 100.64.0.1 100.100.100.200 127.0.0.1 127.8.8.8 169.254.169.254 172.16.0.1
    172.31.255.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1
    224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 168.63.129.16 :: ::1 ::7f00:1 ::ffff:127.0.0.1
    ::ffff:10.0.0.1 ::ffff:169.254.169.254 64:ff9b::127.0.0.1 64:ff9b::a00:1 64:ff9b:1::1 100::1
    2001::1 2001:10::1 2001:db8::1 2002:7f00:1:: 2002:a00:1:: 3fff::1 4000::1 5f00::1 fc00::1
    fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1 localhost
"""
_PUBLIC = """
    1.1.1.1 8.8.8.8 93.184.215.14 172.32.0.1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2606:4700::1111
    2a00:1450:4001:81b::200e 2002:808:808::1
"""


@pytest.mark.parametrize(
    "address",
    _NOT_PUBLIC.split(),
)
def test_addresses_that_are_not_public(address: str) -> None:
    """Private, of the loopback or the link, multicast, reserved; and those that lead to one of these."""
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    _PUBLIC.split(),
)
def test_addresses_that_are_public(address: str) -> None:
    """Of both families, and those that lead to one of these."""
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0", "[::1]", "[::ffff:7f00:1]"]
)
async def test_a_private_address_is_not_connected_to(host: str) -> None:
    """However it is written; the error is about now, as a name may have another address later."""
    async with receiving(OK) as to:
        sink = WebhookSink(f"https://{host}:{to.port}", [SECRET])
        with pytest.raises(SinkUnreachable, match=r"none but private|cannot be resolved"):
            await _sent(sink, made())
    assert to.connections == 0


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> dict[str, Iterator[list[str]]]:
    """What names stand for, one time after the other; others are not known."""
    names: dict[str, Iterator[list[str]]] = {}

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in next(names[host])]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return names


@pytest.fixture
def second_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.2 counts as an address of the internet, as a test has no other."""
    public = addresses.is_public
    monkeypatch.setattr(webhook, "is_public", lambda each: each == "127.0.0.2" or public(each))


@pytest.mark.usefixtures("second_is_public")
async def test_a_name_that_changes_its_address_gains_nothing(
    resolved: dict[str, Iterator[list[str]]], authority: Authority
) -> None:
    """What was checked is what is connected to; the next batch looks anew, and refuses what is private."""
    looks = iter([["127.0.0.2"], ["127.0.0.1"]])
    resolved["hooks.test"] = looks
    tls = authority.server("hooks.test")
    async with (
        receiving(OK, host="127.0.0.2", tls=tls) as public,
        receiving(OK, port=public.port, tls=tls) as private,
    ):
        url = f"https://hooks.test:{public.port}/"
        sink = WebhookSink(url, [SECRET], ca_file=authority.file)
        await sink.send([made("a"), made("b"), made("a")])
        # The second look is still to come.
        with pytest.raises(SinkUnreachable, match="none but private or reserved addresses"):
            await _sent(sink, made())
        assert next(looks, None) is None
    assert (len(public.received), private.connections) == (3, 0)


@pytest.mark.usefixtures("second_is_public")
async def test_private_addresses_beside_a_public_one_are_left_out(
    resolved: dict[str, Iterator[list[str]]], authority: Authority
) -> None:
    """Nobody connects to them, also if the public one does not answer."""
    resolved["hooks.test"] = iter([["127.0.0.1", "127.0.0.2"]])
    async with receiving(OK, tls=authority.server("hooks.test")) as private:
        sink = WebhookSink(f"https://hooks.test:{private.port}", [SECRET], ca_file=authority.file)
        with pytest.raises(SinkUnreachable, match="ConnectError"):
            await _sent(sink, made())
    assert private.connections == 0


async def test_the_next_address_is_tried(resolved: dict[str, Iterator[list[str]]]) -> None:
    """One that takes no connection is passed over; the one that answered is the first from then on."""
    resolved["hooks.test"] = itertools.repeat(["127.0.0.3", "127.0.0.1"])
    async with receiving(OK) as to:
        sink = WebhookSink(f"http://hooks.test:{to.port}", [SECRET], allow_private=True)
        await sink.send([made()])
        assert await sink._addresses() == ["127.0.0.1", "127.0.0.3"]
        await _sent(sink, made())
    assert len(to.received) == 2
    assert to.received[0].headers["host"] == f"hooks.test:{to.port}"


@pytest.mark.usefixtures("resolved")
@pytest.mark.parametrize("host", ["unknown.test", "a" * 70 + ".test"])
async def test_a_name_that_is_not_known_is_sent_again(host: str) -> None:
    """It may be known later."""
    with pytest.raises(SinkUnreachable, match="cannot be resolved"):
        await _sent(WebhookSink(f"https://{host}", [SECRET]), made())


async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would connect to what nobody has checked."""
    async with receiving(OK) as to, receiving(OK) as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        await _sent(_sink(to), made())
    assert (len(to.received), proxy.connections) == (1, 0)


# TLS


def _usage(*, signs: bool) -> x509.KeyUsage:
    """What the key of an authority, or of a server, is for."""
    rest = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment"), False)
    last = dict.fromkeys(("key_agreement", "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, **rest, **last)


class Authority:
    """An authority for certificates of servers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of tests")])
        self.file = folder / "authority.pem"
        self.file.write_bytes(
            self._made(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))
        )

    def server(self, name: str) -> ssl.SSLContext:
        """What a server of this name serves with."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._made(subject, key, x509.SubjectAlternativeName([x509.DNSName(name)]))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = self._folder / f"{name}.pem"
        file.write_bytes(private + certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _made(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, of: x509.ExtensionType) -> bytes:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(of, critical=isinstance(of, x509.BasicConstraints))
            # Python 3.13 trusts no certificate without these.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(_usage(signs=isinstance(of, x509.BasicConstraints)), True)
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """An authority that nobody trusts but who is told to."""
    return Authority(tmp_path)


async def test_certificates_are_of_the_name(
    resolved: dict[str, Iterator[list[str]]], authority: Authority
) -> None:
    """The server hears the name it is asked for, in TLS and in Host; one of another name is not trusted."""
    resolved["hooks.test"] = itertools.repeat(["127.0.0.1"])
    heard: list[str | None] = []
    tls = authority.server("hooks.test")
    tls.sni_callback = lambda _socket, name, _context: heard.append(name)
    async with receiving(OK, tls=tls) as to:
        url = f"https://hooks.test:{to.port}/"
        await _sent(WebhookSink(url, [SECRET], allow_private=True, ca_file=authority.file), made())
    assert (heard, to.received[0].headers["host"]) == (["hooks.test"], f"hooks.test:{to.port}")
    async with receiving(OK, tls=authority.server("other.test")) as to:
        url = f"https://hooks.test:{to.port}/"
        with pytest.raises(SinkUnreachable, match=r"certificate verify failed: Hostname mismatch"):
            await _sent(WebhookSink(url, [SECRET], allow_private=True, ca_file=authority.file), made())
        with pytest.raises(SinkUnreachable, match=r"certificate verify failed"):
            await _sent(WebhookSink(url, [SECRET], allow_private=True), made())
    assert to.received == []


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_authorities_that_cannot_be_read(content: str | None, tmp_path: Path) -> None:
    """The error names the option."""
    file = tmp_path / "authority.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InvalidRequest, match="ca_file cannot be read") as raised:
        WebhookSink("https://example.com", [SECRET], ca_file=file)
    assert raised.value.field == "ca_file"


# What is shown


@pytest.mark.parametrize("answer", [status(500), status(400), _closes_at_once], ids=["500", "400", "none"])
async def test_nothing_of_a_secret_is_shown(answer: Answer, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in a log, of httpx too, nor in an error, its traceback or the repr of the sink."""
    caplog.set_level(logging.DEBUG)
    event = made(payload="P0YLOAD")
    async with receiving(answer) as to:
        url = f"http://bob:pa%40ss@127.0.0.1:{to.port}/T0PATH/B0TOKEN?key=Q0UERY"
        sink = WebhookSink(url, [SECRET, OTHER], allow_private=True)
        with pytest.raises((SinkUnreachable, NonRetryable)) as raised:
            await _sent(sink, event)
    (got,) = to.received
    assert got.headers["authorization"] == f"Basic {base64.b64encode(b'bob:pa@ss').decode()}"
    assert got.target == "/T0PATH/B0TOKEN?key=Q0UERY"
    shown = "".join(traceback.format_exception(raised.value))
    shown += repr(raised.value) + repr(sink) + repr(sink._signer) + caplog.text + repr(vars(raised.value))
    for hidden in (
        "bob",
        "pa@ss",
        "pa%40ss",
        "T0PATH",
        "B0TOKEN",
        "Q0UERY",
        "P0YLOAD",
        SECRET[6:],
        OTHER[6:],
    ):
        assert hidden not in shown
    assert repr(sink) == f"<WebhookSink of http://127.0.0.1:{to.port}>"


# Options


@pytest.mark.parametrize(
    "url",
    ["", "example.com", "ftp://example.com", "https://", "https:///x", "https://a b.com", "https://h:99999",
     "https://h\n", "https://[::1", 7, None],
)  # fmt: skip
def test_a_url_that_is_none(url: Any) -> None:
    """The error does not show it."""
    with pytest.raises(InvalidRequest, match="url must be that of a host") as raised:
        WebhookSink(url, [SECRET])
    assert raised.value.field == "url"


def test_http_is_for_private_networks() -> None:
    """Others could read what it carries."""
    with pytest.raises(InvalidRequest, match="url must begin with https: http needs allow_private"):
        WebhookSink("http://example.com", [SECRET])


def _options(**given: Any) -> dict[str, Any]:
    return {"type": "webhook", "url": "https://bob:pass@example.com/T0PATH", "secrets": [SECRET], **given}


async def test_options_open_the_sink() -> None:
    """All of them, as a file of TOML gives them; none of their texts is shown."""
    options = WebhookOptions.model_validate(
        _options(timeout=20, parallel=4, allow_private=False, secrets=[SECRET, OTHER])
    )
    sink = options.open()
    assert repr(sink) == "<WebhookSink of https://example.com>"
    assert (sink._seconds, sink._parallel) == (20.0, 4)
    assert not any(hidden in repr(options) + str(options) for hidden in ("T0PATH", "pass", SECRET, OTHER))
    await sink.close()


@pytest.mark.parametrize(
    ("given_options", "named"),
    [
        ({"secrets": [SECRET, "whsec_T0PATH"]}, "secrets.1 must be"),
        ({"secrets": []}, "secrets must be"),
        ({"secrets": "T0PATH"}, "secrets\n"),
        ({"url": "http://bob:pass@example.com/T0PATH"}, "url must begin with https"),
        ({"url": 7}, "url\n"),
        ({"timeout": -1}, "timeout must be"),
        ({"timeout": "T0PATH"}, "timeout\n"),
        ({"parallel": 0}, "parallel\n"),
        ({"ca_file": "/missing"}, "ca_file cannot be read"),
        ({"retries": 3}, "retries\n"),
        ({"type": "kafka"}, "type\n"),
    ],
)
def test_an_option_that_is_wrong_is_named(given_options: dict[str, Any], named: str) -> None:
    """With the rule that it breaks, and without its value."""
    with pytest.raises(ValidationError) as raised:
        WebhookOptions.model_validate(_options(**given_options))
    assert named in str(raised.value)
    assert not any(hidden in str(raised.value) for hidden in ("T0PATH", "pass@", SECRET))


def test_without_the_extra_the_error_names_it() -> None:
    """In an OS process that has no httpx."""
    program = "import sys; sys.modules['httpx'] = None\nimport progressor.sinks.webhook"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        "ImportError: WebhookSink needs the extra `webhooks`: pip install 'progressor-engine[webhooks]'"
    )
