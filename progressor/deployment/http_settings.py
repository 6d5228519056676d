"""The settings of the HTTP API: access, rates, limits, and waits for answers.

Rule: they are texts as in the environment; the code that builds the API reads their meaning.
"""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field


class HttpSettings(BaseModel):
    """The settings that only `progressor api` reads."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    http_insecure_no_auth: bool = False
    """Let every caller in, on any address, with or without credentials: behind a gateway of your own."""
    http_allowed_hosts: str | None = None
    """Hosts under which callers without credentials may ask, beside this machine: api,engine.example."""
    http_token_kept_for: timedelta = Field(
        default=timedelta(seconds=5), ge=timedelta(0), le=timedelta(minutes=5)
    )
    """The time for which a token is kept in memory: a revoked one is accepted for at most so long."""
    http_oidc_issuer: str | None = None
    """The issuer of an OpenID Connect provider whose tokens are accepted: an https:// address."""
    http_oidc_audience: str | None = None
    """The audience that these tokens must have; needed with the issuer."""
    http_oidc_jwks_url: str | None = None
    """The address of the provider's keys. Unset: the one of its discovery document."""
    http_oidc_algorithms: str = "RS256,ES256"
    """The algorithms of signatures that are accepted."""
    http_oidc_scope_claims: str = "scope,scp,roles"
    """The claims that hold a caller's scopes; with dots, a path: realm_access.roles."""
    http_oidc_scopes: str | None = None
    """A JSON object from values of these claims to scopes: {"billing-ops": ["processes:read", "bulk"]}."""
    http_oidc_namespaces_claim: str = "progressor_namespaces"
    """The claim with the patterns of the namespaces that a caller sees."""
    http_oidc_namespaces: str | None = None
    """The patterns of callers without that claim: billing.*,shop. Unset: they see none."""
    http_certificate_header: str | None = None
    """The header in which a proxy names the subject of a client certificate that it has verified."""
    http_trusted_proxies: str | None = None
    """The addresses and networks of that proxy; the header counts only from it: 10.0.0.7,10.1.0.0/16."""
    http_certificates: str | None = None
    """A JSON object, rights by subject: {"CN=web": {"scopes": ["all"], "namespaces": ["billing.*"]}}."""
    http_rate: float | None = Field(default=None, gt=0, le=1_000_000, allow_inf_nan=False)
    """The requests per second that one server takes from each caller. Unset: any number."""
    http_burst: int | None = Field(default=None, ge=1, le=1_000_000)
    """The requests that it takes from a caller at once. Unset: those of two seconds."""
    http_max_requests: int = Field(default=1000, ge=1)
    """The limit of requests under way in one server, with those that wait for answers."""
    http_max_watches: int = Field(default=1000, ge=1, le=10_000)
    """The limit of streams (watches, the feed) that are open in one server, beside its requests."""
    http_max_connections: int = Field(default=2000, ge=1)
    """The limit of connections of one server; fewer if the limit of file descriptors is lower."""
    http_max_log_lines: int = Field(default=50, ge=0, le=1_000_000)
    """The limit of lines per second, in one server, about answers below 500; the rest is counted."""
    http_require_idempotency_key: bool = False
    """Refuse calls, notices, repairs and changes of timers without an idempotency key."""
    http_wait: timedelta = Field(default=timedelta(seconds=30), gt=timedelta(0), le=timedelta(hours=1))
    """The time for which a request waits for its answer, unless the request states another one."""
    http_longest_wait: timedelta = Field(
        default=timedelta(seconds=60), gt=timedelta(0), le=timedelta(hours=1)
    )
    """The longest time for which any request waits; a longer one that a request states is cut to it."""
    http_drain: timedelta = Field(default=timedelta(seconds=5), ge=timedelta(0), le=timedelta(hours=1))
    """The time for which a server that stops still waits for answers."""
