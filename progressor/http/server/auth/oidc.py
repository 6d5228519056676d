"""Tokens of an identity provider (OpenID Connect): a signature, and claims that become rights.

Rule: the options name the algorithms that hold, never the token; a key is for the algorithms of its own
kind alone. A token that cannot be verified because the provider's keys are out of reach is neither admitted
nor called wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import jwt

from progressor.errors import InvalidRequest
from progressor.http.server.auth.jwks import Keys, is_loopback
from progressor.http.server.auth.principals import Principal, unknown
from progressor.rights import MOST_PATTERNS, Rights, Scope, is_pattern

# Algorithms, and the kind of key that each needs. No HS…: whoever checks such a signature can make it.
ALGORITHMS: Mapping[str, str] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
# Seconds by which the provider's clock and that of this machine may differ.
_LEEWAY_SECONDS = 30
_LONGEST = 16_384


@dataclass(frozen=True, slots=True)
class Provider:
    """An identity provider: its issuer, the audience of its tokens, and the meaning of their claims."""

    issuer: str
    audience: str
    jwks_url: str | None = None
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    scope_claims: tuple[str, ...] = ("scope", "scp", "roles")
    scopes: Mapping[str, frozenset[Scope]] = field(default_factory=dict)
    """The scopes for which a value of these claims stands; a scope of ours stands for itself."""
    namespaces_claim: str = "progressor_namespaces"
    namespaces: tuple[str, ...] = ()
    """The patterns of a token without this claim."""

    def __post_init__(self) -> None:
        for field_name in ("algorithms", "scope_claims"):
            if not getattr(self, field_name):
                setting = f"http_oidc_{field_name}"
                raise InvalidRequest(f"{setting} must name at least one", field=setting)
        for name in self.algorithms:
            if name not in ALGORITHMS:
                raise InvalidRequest(
                    f"http_oidc_algorithms must be some of {', '.join(ALGORITHMS)}, not {name!r:.80}",
                    field="http_oidc_algorithms",
                )
        for name, url in (("http_oidc_issuer", self.issuer), ("http_oidc_jwks_url", self.jwks_url)):
            if url is not None and not _is_safe(url):
                raise InvalidRequest(
                    f"{name} must be an address that begins with https:// (http:// on this machine alone)",
                    field=name,
                )


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    )


class Oidc:
    """The authenticator of tokens of one provider."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._keys = Keys(provider.issuer, provider.jwks_url)

    async def close(self) -> None:
        """Close the connections to the provider."""
        await self._keys.close()

    async def caller(self, text: str) -> Principal:
        """Return the bearer of a token; raise Refusal if it does not hold, or cannot be verified now."""
        if len(text) > _LONGEST:
            raise unknown("this is no token")
        try:
            header = jwt.get_unverified_header(text)
        except jwt.PyJWTError:
            raise unknown("this is no token") from None
        algorithm = header.get("alg")
        if algorithm not in self._provider.algorithms:
            raise unknown("the token is signed with an algorithm that does not hold here")
        key = await self._keys.of(header.get("kid"), ALGORITHMS[algorithm], algorithm)
        if key is None:
            raise unknown("the token is signed with a key that its issuer does not publish")
        claims = self._claims(text, key.key, algorithm)
        return Principal(
            f"oidc {claims['sub']!r:.200}", Rights(self._scopes(claims), self._namespaces(claims))
        )

    def _claims(self, text: str, key: Any, algorithm: str) -> dict[str, Any]:
        try:
            return jwt.decode(
                text,
                key,
                algorithms=[algorithm],
                issuer=self._provider.issuer,
                audience=self._provider.audience,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise unknown("this token has ended") from None
        except jwt.ImmatureSignatureError:
            raise unknown("this token does not hold yet") from None
        except jwt.InvalidAudienceError:
            raise unknown("this token is for another audience") from None
        except jwt.InvalidIssuerError:
            raise unknown("this token is of another issuer") from None
        except (jwt.PyJWTError, TypeError, ValueError):
            raise unknown("this token does not hold") from None

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        found: set[Scope] = set()
        for claim in self._provider.scope_claims:
            for value in _texts(_claim(claims, claim)):
                if value in self._provider.scopes:
                    found |= self._provider.scopes[value]
                elif value in tuple(Scope):
                    found.add(Scope(value))
        return frozenset(found)

    def _namespaces(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        claimed = _claim(claims, self._provider.namespaces_claim)
        if claimed is None:
            return self._provider.namespaces
        patterns = dict.fromkeys(pattern for pattern in _texts(claimed) if is_pattern(pattern))
        return tuple(patterns)[:MOST_PATTERNS]


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or by a path with dots, as in realm_access.roles."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _texts(claim: Any) -> Iterator[str]:
    """Return the values of a claim: a list, or a text with spaces between them."""
    listed = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else ()
    return (each for each in listed if isinstance(each, str))
