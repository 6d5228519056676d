"""nginx as the page on security has it, before the API: who is let in, and what arrives whole.

Rule: where the program is not installed the tests are skipped, and say so.
"""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from progressor import Client, Engine
from progressor.http import HttpClient
from progressor.http.server.app import make_app
from progressor.http.server.auth.authenticator import AccessOptions, Authenticator
from progressor.http.server.auth.client_certificates import Certificates, networks
from progressor.http.server.serve import ApiServer
from progressor.rights import EVERYTHING
from tests.clusters import free_port
from tests.docs.pages import ROOT, blocks
from tests.http import shop

_DEADLINE = 30.0
_NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
_PROCESSES = f"/v1/namespaces/{shop.NS}/processes"

pytestmark = pytest.mark.skipif(_NGINX is None, reason="there is no nginx")


class Authority:
    """Certificates of one authority, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self.certificate = self._write("ca", self._made(self._name, self._key, is_authority=True))

    def issue(self, file: str, *names: x509.NameAttribute[str]) -> tuple[Path, Path]:
        """A certificate and its key, for this machine's address and for these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        (self._folder / f"{file}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return self._write(file, self._made(x509.Name(names), key)), self._folder / f"{file}.key"

    def _write(self, file: str, certificate: x509.Certificate) -> Path:
        path = self._folder / f"{file}.pem"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def _made(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool = False
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )


class Door(NamedTuple):
    """Where nginx listens, whom it knows, and certificates to show there."""

    port: int
    authority: Path
    known: tuple[Path, Path]
    stranger: tuple[Path, Path]

    def context(self, certificate: tuple[Path, Path] | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority)
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        certificate: tuple[Path, Path] | None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """The status and the answer; the path goes out as it is."""

        def asked() -> tuple[int, Any]:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, context=self.context(certificate), timeout=_DEADLINE
            )
            data = None if body is None else json.dumps(body)
            said = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, data, said)
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            is_json = "json" in (answer.headers["Content-Type"] or "")
            return answer.status, json.loads(text) if is_json else text

        return await asyncio.to_thread(asked)


def _server(api: str, port: int, folder: Path) -> str:
    """The server of the page, with what the page says of certificates, on addresses of this machine."""
    server, certified = (
        block.code for block in blocks(ROOT / "docs/how-to/secure-the-http-api.md", "nginx")
    )
    text = re.sub(
        r"^    location / \{.*?^    \}\n", lambda _: certified, server, flags=re.MULTILINE | re.DOTALL
    )
    assert text.count("X-Client-Subject") == 1
    text = re.sub(r"server 10\.0\.0\.\d+:8080;", f"server {api};", text)
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;").replace(
        "/etc/nginx", str(folder)
    )
    places = "".join(
        f"{name}_temp_path {folder}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"daemon off; pid {folder}/pid; events {{}}\nhttp {{ access_log off; {places}\n{text}}}\n"


@contextmanager
def _nginx(configuration: str, folder: Path, port: int) -> Iterator[None]:
    (folder / "nginx.conf").write_text(f"{_whoever()}{configuration}", encoding="utf-8")
    assert _NGINX is not None
    log = folder / "error.log"
    process = subprocess.Popen([_NGINX, "-e", log, "-c", folder / "nginx.conf", "-p", folder])
    try:
        deadline = time.monotonic() + _DEADLINE
        while not _listens(port):
            assert process.poll() is None, log.read_text("utf-8")
            assert time.monotonic() < deadline, "nginx listens"
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(_DEADLINE)


def _whoever() -> str:
    # Whom its workers run as, else somebody who cannot read the test's folder.
    return "user root;\n" if os.geteuid() == 0 else ""


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture
async def door(dsn: str) -> AsyncIterator[Door]:
    """The API behind nginx, which has verified who asks."""
    with tempfile.TemporaryDirectory(prefix="progressor-nginx-") as name:
        folder, port = Path(name), free_port()
        authority = Authority(folder)
        attribute = x509.NameAttribute
        shop_name = attribute(NameOID.ORGANIZATION_NAME, "Shop")
        known = authority.issue("known", shop_name, attribute(NameOID.COMMON_NAME, "Bürö , web"))
        stranger = authority.issue("stranger", attribute(NameOID.COMMON_NAME, "nobody"))
        authority.issue("api")
        shutil.copy(authority.certificate, folder / "clients.pem")
        subjects = {_shown(known[0]): EVERYTHING}
        certificates = Certificates(
            "X-Client-Subject", networks("http_trusted_proxies", ["127.0.0.1"]), subjects
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(Engine(dsn, [shop.make()]))
            client = Client(dsn)
            app = make_app(
                client, access=Authenticator(client.tokens, AccessOptions(certificates=certificates))
            )
            api = await stack.enter_async_context(ApiServer(client, app, host="127.0.0.1", port=0))
            stack.enter_context(
                _nginx(_server(api.url.removeprefix("http://"), port, folder), folder, port)
            )
            yield Door(port, authority.certificate, known, stranger)


def _shown(certificate: Path) -> str:
    """The subject as the page says that an operator sees it."""
    (command,) = re.findall(
        r"`(openssl x509 [^`]*)`", (ROOT / "docs/how-to/secure-the-http-api.md").read_text("utf-8")
    )
    done = subprocess.run(
        command.replace("web.pem", str(certificate)).split(), capture_output=True, text=True, check=True
    )
    return done.stdout.strip().removeprefix("subject=").strip()


async def test_who_has_a_certificate_is_known(door: Door) -> None:
    """By its subject, which nobody else can claim by a header."""
    assert await door.ask("POST", f"{_PROCESSES}/o1", {"item": "tea"}, certificate=door.known) == (
        201,
        "1 x tea",
    )
    (status, _) = await door.ask("GET", f"{_PROCESSES}/o1", certificate=door.stranger)
    assert status == 401
    for subject in ("CN=web,O=Shop", _shown(door.known[0])):
        for name in ("X-Client-Subject", "x-client-subject", "X_Client_Subject"):
            (status, _) = await door.ask(
                "GET", f"{_PROCESSES}/o1", certificate=door.stranger, headers={name: subject}
            )
            assert status == 401, name
    (status, page) = await door.ask("GET", f"{_PROCESSES}/o1", certificate=None)
    assert (status, "nginx" in page) == (400, True)


@pytest.mark.parametrize(
    "process_id",
    [
        "a/b",
        "a//b",
        "50%",
        "a%2Fb",
        "a b",
        "a+b",
        "ü/ö",
        "😀",
        "a.b",
        "...",
        "a;b=c",
        "a?b#c",
        "~x",
        "a\\b",
        '"',
    ],
)
async def test_an_id_arrives_whole(door: Door, process_id: str) -> None:
    """Percent-encoded, as any client would write it."""
    path = f"{_PROCESSES}/{quote(process_id, safe='') if process_id[0] != '~' else '~fng'}"
    (status, _) = await door.ask("POST", path, {"item": "tea"}, certificate=door.known)
    assert status == 201
    (status, process) = await door.ask("GET", path, certificate=door.known)
    assert (status, process["process_id"]) == (200, process_id)


async def test_what_is_large_arrives_whole(door: Door) -> None:
    """A body, headers that were sent, and headers of the answer, each as large as the API takes it."""
    path = f"{_PROCESSES}/{quote('😀' * 256, safe='')}"
    (status, _) = await door.ask("POST", path, {"item": "tea"}, certificate=door.known)
    assert status == 201
    text = "x" * 8_000_000
    key = quote("😀" * 256, safe="").lower()
    (status, answer) = await door.ask(
        "POST",
        f"{path}/calls/echo",
        text,
        certificate=door.known,
        headers={"Idempotency-Key": f'%"{key}"', "Progressor-Context": json.dumps("x" * 16_000)},
    )
    assert (status, answer == text) == (200, True)
    asked = {"Idempotency-Key": f'%"{key[:-12]}"', "Prefer": "respond-async"}
    (status, _) = await door.ask("POST", f"{path}/notices/echo", certificate=door.known, headers=asked)
    assert status == 202


async def test_the_client_of_the_api(door: Door) -> None:
    """With a certificate of its own, and ids that no proxy leaves alone."""
    transport = httpx.AsyncHTTPTransport(verify=door.context(door.known))
    async with HttpClient(f"https://127.0.0.1:{door.port}", transport=transport) as client:
        for process_id in ("..", ".", "../..", "/", "//", "~", "%2e%2e", "\n", "😀" * 256):
            await client.start(shop.NS, process_id, {"item": "tea"})
            assert (await client.get(shop.NS, process_id)).process_id == process_id
