"""An identity provider: keys, tokens signed with them, and its addresses, which a test can take away.

Its addresses are served on a loopback socket, as those of a real one would be.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

AUDIENCE = "progressor"


class Provider:
    """Signs with RSA key `one` unless told otherwise."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {
            "one": rsa.generate_private_key(public_exponent=65537, key_size=2048),
            "curve": ec.generate_private_key(ec.SECP256R1()),
        }
        self.published = ["one", "curve"]
        self.asked: list[str] = []
        self.status = 200
        self.issuer = ""

    def jwks(self) -> dict[str, Any]:
        keys: list[dict[str, Any]] = [{"kty": "oct", "kid": "shared", "k": "c2VjcmV0"}, {"kty": "none"}]
        for name in self.published:
            key = self.keys[name].public_key()
            kind = jwt.algorithms.ECAlgorithm if name == "curve" else jwt.algorithms.RSAAlgorithm
            keys.append({**kind.to_jwk(key, as_dict=True), "kid": name, "use": "sig"})
        return {"keys": keys}

    def public_pem(self, name: str = "one") -> bytes:
        return (
            self.keys[name]
            .public_key()
            .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = datetime.now(UTC)
        claims = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "kim",
            "iat": now,
            "exp": now + timedelta(hours=1),
            "scope": "processes:read state:read openid",
            "progressor_namespaces": ["shop.*"],
        }
        changed = {**claims, **changes}
        return {name: value for name, value in changed.items() if value is not None}

    def token(
        self, key: str = "one", algorithm: str = "RS256", kid: str | None = None, **claims: Any
    ) -> str:
        return jwt.encode(
            self.claims(**claims), self.keys[key], algorithm=algorithm, headers={"kid": kid or key}
        )


@contextmanager
def served(provider: Provider) -> Iterator[Provider]:
    """The provider's description and keys, at its issuer's address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.asked.append(self.path)
            answers = {
                "/.well-known/openid-configuration": {
                    "issuer": provider.issuer,
                    "jwks_uri": provider.issuer + "/keys",
                },
                "/keys": provider.jwks(),
            }
            body = json.dumps(answers.get(self.path, {})).encode()
            self.send_response(provider.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
