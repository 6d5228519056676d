"""The access of a real server: it authenticates callers by tokens and certificates, and finds their rights.

Rule: a caller whose token or certificate does not hold is refused, even where none is needed yet. Only a
server that was told to let everybody in ignores tokens; it still checks where a request comes from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto

from starlette.requests import Request

from progressor.client.tokens import Tokens
from progressor.errors import InvalidRequest
from progressor.http.server.auth.client_certificates import Certificates, peer_of
from progressor.http.server.auth.jwks import is_loopback
from progressor.http.server.auth.oidc import Oidc, Provider
from progressor.http.server.auth.origins import AllowedHosts
from progressor.http.server.auth.principals import Principal, unknown
from progressor.http.server.auth.rate_limit import CallerRate, RateLimit
from progressor.http.server.auth.scopes import Admission
from progressor.http.server.auth.tokens import TokenAuthenticator
from progressor.http.server.problems import Refusal
from progressor.http.wire.problems import FORBIDDEN
from progressor.rights import EVERYTHING

# Our own tokens begin so; any other token is the provider's.
_MARK = "prg_"
# Headers that proxies write: the caller behind a proxy need not be on this machine.
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via")


class Openness(Enum):
    """The callers who are admitted without a token or a certificate."""

    NOBODY = auto()
    UNTIL_THERE_ARE_TOKENS = auto()
    """Callers on this machine, on a loopback address, as long as there are no tokens."""
    EVERYBODY = auto()


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """The options of authentication."""

    provider: Provider | None = None
    certificates: Certificates | None = None
    token_kept_for: timedelta = timedelta(seconds=5)
    """The time that a token is kept in memory; a revoked one is admitted for at most so long."""
    rate: CallerRate | None = None
    insecure_no_auth: bool = False
    allowed_hosts: AllowedHosts = field(default_factory=AllowedHosts)
    """Hosts, beside this machine, under which callers who show nothing may ask."""


class Authenticator:
    """Access for callers with a token or a certificate. Until `begin`, it refuses callers without.

    With `insecure_no_auth` it admits everybody.
    """

    def __init__(self, tokens: Tokens, options: AccessOptions) -> None:
        self._bearers = TokenAuthenticator(tokens, kept_for=options.token_kept_for)
        self._oidc = None if options.provider is None else Oidc(options.provider)
        self._certificates = options.certificates
        self._rates = None if options.rate is None else RateLimit(options.rate)
        self._hosts = options.allowed_hosts
        self._openness = Openness.EVERYBODY if options.insecure_no_auth else Openness.NOBODY

    async def begin(self, host: str) -> None:
        """Raise InvalidRequest if callers who show nothing could ask on this address."""
        if self._openness is Openness.EVERYBODY or self._knows_others:
            return
        if is_loopback(host):
            self._openness = Openness.UNTIL_THERE_ARE_TOKENS
        elif not await self._bearers.are_needed():
            raise InvalidRequest(
                f"on {host} anybody could ask, and there is no token: make one with `progressor token "
                "create`, set PROGRESSOR_HTTP_OIDC_ISSUER, listen on 127.0.0.1, or say "
                "--insecure-no-auth if something in front of it lets nobody in",
                field="host",
            )

    async def close(self) -> None:
        """Close the connections to the identity provider."""
        if self._oidc is not None:
            await self._oidc.close()

    @property
    def _knows_others(self) -> bool:
        return self._oidc is not None or self._certificates is not None

    async def admit(self, request: Request) -> Admission:
        """Return the caller of a request, which is counted; raise Refusal if it is unknown."""
        caller = await self._caller(request)
        return Admission(caller, None if self._rates is None else self._rates.take(caller.name))

    async def _caller(self, request: Request) -> Principal:
        shown = request.headers.getlist("Authorization")
        if shown and self._openness is not Openness.EVERYBODY:
            return await self._bearer(shown)
        certified = None if self._certificates is None else self._certificates.caller(request)
        if certified is None:
            return await self._stranger(request)
        # A browser shows its certificate whatever page sends the request.
        self._hosts.require_same_site(request.headers)
        return certified

    async def _bearer(self, shown: list[str]) -> Principal:
        kind, _, text = shown[0].strip().partition(" ")
        if len(shown) != 1 or kind.lower() != "bearer":
            raise unknown("the header Authorization must be: Bearer, and a token")
        text = text.strip()
        if self._oidc is not None and not text.startswith(_MARK):
            return await self._oidc.caller(text)
        return await self._bearers.caller(text)

    async def _stranger(self, request: Request) -> Principal:
        """Return a caller who shows nothing; raise Refusal if such a caller may not ask."""
        match self._openness:
            case Openness.EVERYBODY:
                self._hosts.require_here(request.headers)
            case Openness.UNTIL_THERE_ARE_TOKENS:
                if await self._bearers.are_needed():
                    raise unknown("show a token: Authorization: Bearer prg_…", shown=False)
                _refuse_proxied(request)
                self._hosts.require_here(request.headers)
            case Openness.NOBODY:
                raise unknown("show a token: Authorization: Bearer …", shown=False)
        return Principal(f"anybody at {peer_of(request)}", EVERYTHING)


def _refuse_proxied(request: Request) -> None:
    """Raise Refusal if a proxy on this machine forwards the request: its caller may be anywhere."""
    for name in _FORWARDED:
        if name in request.headers:
            raise Refusal(
                FORBIDDEN,
                f"without tokens only this machine is answered, and the header {name} says that somebody "
                "asks through a proxy: make a token with `progressor token create`",
            )
