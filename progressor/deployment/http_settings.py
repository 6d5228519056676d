"""The settings of the HTTP API: who may ask, how often, and how long answers are waited for.

Rule: texts as they stand in the environment; what they mean is read where the API is built.
"""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field


class HttpSettings(BaseModel):
    """What only `progressor api` reads."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    http_insecure_no_auth: bool = False
    """Let everybody in, on any address, whatever they show: behind a gateway of your own."""
    http_allowed_hosts: str | None = None
    """The hosts under which whoever shows nothing may ask, beside this machine: api,progressor.example."""
    http_token_kept_for: timedelta = Field(
        default=timedelta(seconds=5), ge=timedelta(0), le=timedelta(minutes=5)
    )
    """How long a token is kept in memory: one that was revoked lives on for at most so long."""
    http_oidc_issuer: str | None = None
    """The identity provider whose tokens hold (OpenID Connect): its issuer, an https:// address."""
    http_oidc_audience: str | None = None
    """Whom these tokens must be for; needed with the issuer."""
    http_oidc_jwks_url: str | None = None
    """Where its keys are. Unset: where its description says."""
    http_oidc_algorithms: str = "RS256,ES256"
    """Which signatures hold."""
    http_oidc_scope_claims: str = "scope,scp,roles"
    """The claims that say what a caller may do; with dots, a path: realm_access.roles."""
    http_oidc_scopes: str | None = None
    """A JSON object: what values of these claims mean: {"billing-ops": ["processes:read", "bulk"]}."""
    http_oidc_namespaces_claim: str = "progressor_namespaces"
    """The claim with the patterns of the namespaces that a caller sees."""
    http_oidc_namespaces: str | None = None
    """The patterns of callers without that claim: billing.*,shop. Unset: they see none."""
    http_certificate_header: str | None = None
    """The header in which a proxy names the subject of a client certificate that it has verified."""
    http_trusted_proxies: str | None = None
    """The addresses and networks of that proxy, where alone the header counts: 10.0.0.7,10.1.0.0/16."""
    http_certificates: str | None = None
    """A JSON object: who has which rights: {"CN=web": {"scopes": ["all"], "namespaces": ["billing.*"]}}."""
    http_rate: float | None = Field(default=None, gt=0, le=1_000_000, allow_inf_nan=False)
    """How many requests a second one server takes of each caller. Unset: any number."""
    http_burst: int | None = Field(default=None, ge=1, le=1_000_000)
    """How many of them at once. Unset: those of two seconds."""
    http_max_requests: int = Field(default=1000, ge=1)
    """How many requests may be under way in one server, those that wait for answers among them."""
    http_max_connections: int = Field(default=2000, ge=1)
    """How many connections one server holds, and fewer where the limit of file descriptors is lower."""
    http_require_idempotency_key: bool = False
    """Refuse calls, notices, repairs and changes of timers without an idempotency key."""
    http_wait: timedelta = Field(default=timedelta(seconds=30), gt=timedelta(0), le=timedelta(hours=1))
    """How long an answer is waited for, unless its request says so itself."""
    http_longest_wait: timedelta = Field(
        default=timedelta(seconds=60), gt=timedelta(0), le=timedelta(hours=1)
    )
    """How long it is waited for at most, whatever the request says."""
    http_drain: timedelta = Field(default=timedelta(seconds=5), ge=timedelta(0), le=timedelta(hours=1))
    """How long answers are still waited for once the server was told to stop."""
