"""The settings of the HTTP API as what it does: who may ask, how often, how long it waits."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import httpx
import pytest

from progressor.cli.api_access import access_options, guarded, http_options
from progressor.client.client import Client
from progressor.deployment.http_settings import HttpSettings
from progressor.deployment.settings import Settings
from progressor.errors import InvalidRequest
from progressor.http.server.auth.authenticator import AccessOptions
from progressor.http.server.auth.rate_limit import CallerRate
from progressor.http.server.options import HttpOptions
from progressor.rights import Rights, Scope

OIDC = {"http_oidc_issuer": "https://login.example", "http_oidc_audience": "progressor"}
CERTIFICATES = {
    "http_certificate_header": "X-Client-Subject",
    "http_trusted_proxies": "10.0.0.7, 10.1.0.0/16",
    "http_certificates": json.dumps(
        {"CN=web": {"scopes": ["processes:call"], "namespaces": ["billing.*"]}}
    ),
}


def access(**given: Any) -> AccessOptions:
    return access_options(Settings(**given))


def without(given: dict[str, str], name: str) -> dict[str, str]:
    return {each: value for each, value in given.items() if each != name}


def test_nothing_said_is_tokens_alone() -> None:
    """No provider, no certificates, no rate; and nobody is let in who shows nothing."""
    assert access() == AccessOptions()
    assert http_options(Settings()) == HttpOptions()


_FIXED = {"max_import_bytes", "max_page_bytes", "max_memory_bytes"}


def test_every_option_of_an_answer_is_a_setting() -> None:
    """But the sizes from which the memory of a server follows. Each changes its own option alone."""
    given: dict[str, Any] = {
        "http_wait": 7,
        "http_longest_wait": 70,
        "http_drain": 0,
        "max_value_bytes": 1 << 20,
        "http_max_requests": 3,
        "http_max_watches": 9,
        "http_max_connections": 4,
        "http_max_log_lines": 5,
        "http_require_idempotency_key": True,
    }
    options = {each.name for each in fields(HttpOptions)}
    assert {name.removeprefix("http_") for name in given} == options - _FIXED
    for name, value in given.items():
        option = name.removeprefix("http_")
        changed = http_options(Settings(**{name: value}))
        assert getattr(changed, option) == value
        others = [each for each in options if each != option]
        assert [getattr(changed, each) for each in others] == [
            getattr(HttpOptions(), each) for each in others
        ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("http_wait", "0"),
        ("http_wait", "x"),
        ("http_wait", "2:00:00"),
        ("http_longest_wait", "-1"),
        ("http_drain", "-1"),
        ("http_drain", "P1D"),
        ("http_require_idempotency_key", "perhaps"),
        ("http_max_requests", "0"),
        ("http_max_connections", "0"),
        ("http_max_watches", "0"),
        ("http_max_log_lines", "-1"),
        ("http_rate", "0"),
        ("http_rate", "inf"),
        ("http_burst", "0"),
        ("http_token_kept_for", "3600"),
    ],
)
def test_a_value_out_of_bounds_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """By the name of its variable."""
    monkeypatch.setenv(f"PROGRESSOR_{name.upper()}", value)
    with pytest.raises(InvalidRequest, match=f"PROGRESSOR_{name.upper()}") as refused:
        Settings()
    assert refused.value.field == name


def test_a_provider() -> None:
    """Lists are comma-separated, scopes are those of values of its claims."""
    provider = access(
        **OIDC,
        http_oidc_jwks_url="https://login.example/keys",
        http_oidc_algorithms="RS256, ES256,",
        http_oidc_scope_claims="scope, realm_access.roles",
        http_oidc_scopes='{"ops": ["processes:read", "bulk"], "boss": ["all"]}',
        http_oidc_namespaces_claim="teams",
        http_oidc_namespaces="billing.*,shop",
    ).provider
    assert provider is not None
    assert (provider.issuer, provider.audience) == tuple(OIDC.values())
    assert provider.jwks_url == "https://login.example/keys"
    assert provider.algorithms == ("RS256", "ES256")
    assert provider.scope_claims == ("scope", "realm_access.roles")
    assert provider.scopes == {
        "ops": frozenset({Scope.PROCESSES_READ, Scope.BULK}),
        "boss": frozenset(Scope),
    }
    assert (provider.namespaces_claim, provider.namespaces) == ("teams", ("billing.*", "shop"))


def test_certificates() -> None:
    """A header, whose proxies alone count, and who has which rights."""
    certificates = access(**CERTIFICATES).certificates
    assert certificates is not None
    assert certificates.header == "X-Client-Subject"
    assert certificates.proxies == (ip_network("10.0.0.7/32"), ip_network("10.1.0.0/16"))
    assert certificates.subjects == {
        "CN=web": Rights(frozenset({Scope.PROCESSES_CALL}), ("billing.*",)),
    }


def test_a_rate() -> None:
    """Its burst is that of two seconds, and one at least."""
    assert access(http_rate=5).rate == CallerRate(5.0, 10)
    assert access(http_rate=0.1).rate == CallerRate(0.1, 1)
    assert access(http_rate=5, http_burst=3).rate == CallerRate(5.0, 3)


def test_how_long_a_token_is_kept_and_who_needs_none() -> None:
    """As they are said."""
    said = access(http_token_kept_for=60, http_insecure_no_auth=True)
    assert (said.token_kept_for, said.insecure_no_auth) == (timedelta(seconds=60), True)


WRONG: list[tuple[dict[str, str], str]] = [
    # Half of it.
    (without(OIDC, "http_oidc_audience"), "http_oidc_audience"),
    ({"http_oidc_audience": "me"}, "http_oidc_issuer"),
    ({"http_oidc_jwks_url": "https://login.example/keys"}, "http_oidc_issuer"),
    ({"http_oidc_scopes": "{}"}, "http_oidc_issuer"),
    ({"http_oidc_namespaces": "*"}, "http_oidc_issuer"),
    *((without(CERTIFICATES, name), name) for name in CERTIFICATES),
    ({"http_burst": "3"}, "http_rate"),
    ({"http_allowed_hosts": "http://api"}, "http_allowed_hosts"),
    ({"http_allowed_hosts": "api:8080"}, "http_allowed_hosts"),
    ({"http_allowed_hosts": "api,*"}, "http_allowed_hosts"),
    # Not what it must be.
    ({**OIDC, "http_oidc_issuer": "http://login.example"}, "http_oidc_issuer"),
    ({**OIDC, "http_oidc_jwks_url": "ftp://login.example"}, "http_oidc_jwks_url"),
    ({**OIDC, "http_oidc_algorithms": ","}, "http_oidc_algorithms"),
    ({**OIDC, "http_oidc_scope_claims": ","}, "http_oidc_scope_claims"),
    ({**OIDC, "http_oidc_algorithms": "none"}, "http_oidc_algorithms"),
    ({**OIDC, "http_oidc_algorithms": "HS256"}, "http_oidc_algorithms"),
    ({**OIDC, "http_oidc_scopes": "["}, "http_oidc_scopes"),
    ({**OIDC, "http_oidc_scopes": "[]"}, "http_oidc_scopes"),
    ({**OIDC, "http_oidc_scopes": '{"ops": "bulk"}'}, "http_oidc_scopes"),
    ({**OIDC, "http_oidc_scopes": '{"ops": [1]}'}, "http_oidc_scopes"),
    ({**OIDC, "http_oidc_scopes": '{"ops": []}'}, "http_oidc_scopes"),
    ({**OIDC, "http_oidc_scopes": '{"ops": ["everything"]}'}, "http_oidc_scopes"),
    ({**OIDC, "http_oidc_namespaces": "billing.?"}, "http_oidc_namespaces"),
    ({**CERTIFICATES, "http_trusted_proxies": "10.0.0.7/8"}, "http_trusted_proxies"),
    ({**CERTIFICATES, "http_trusted_proxies": "proxy.example"}, "http_trusted_proxies"),
    ({**CERTIFICATES, "http_certificates": "CN=web"}, "http_certificates"),
    ({**CERTIFICATES, "http_certificates": '{"CN=web": {"scopes": ["all"]}}'}, "http_certificates"),
    (
        {**CERTIFICATES, "http_certificates": '{"CN=web": {"scopes": ["all"], "namespaces": "*"}}'},
        "http_certificates",
    ),
    (
        {**CERTIFICATES, "http_certificates": '{"CN=web": {"scopes": ["x"], "namespaces": ["*"]}}'},
        "http_certificates",
    ),
]


@pytest.mark.parametrize(("given", "field"), WRONG, ids=str)
def test_what_is_wrong_is_refused(given: dict[str, str], field: str) -> None:
    """By the name of the variable to change."""
    with pytest.raises(InvalidRequest, match=f"^PROGRESSOR_{field.upper()}: it ") as refused:
        access(**given)
    assert refused.value.field == field


def test_no_setting_of_the_api_is_left_unread() -> None:
    """Each changes what the application is given."""
    changed: dict[str, dict[str, Any]] = {
        **dict.fromkeys(OIDC | CERTIFICATES, OIDC | CERTIFICATES),
        **{
            name: {**OIDC, name: value}
            for name, value in {
                "http_oidc_jwks_url": "https://login.example/keys",
                "http_oidc_algorithms": "ES256",
                "http_oidc_scope_claims": "x",
                "http_oidc_scopes": '{"x": ["all"]}',
                "http_oidc_namespaces_claim": "x",
                "http_oidc_namespaces": "x",
            }.items()
        },
        "http_insecure_no_auth": {"http_insecure_no_auth": True},
        "http_allowed_hosts": {"http_allowed_hosts": "api"},
        "http_token_kept_for": {"http_token_kept_for": 1},
        "http_rate": {"http_rate": 1},
        "http_burst": {"http_rate": 1, "http_burst": 7},
        "http_max_requests": {"http_max_requests": 1},
        "http_max_connections": {"http_max_connections": 1},
        "http_max_watches": {"http_max_watches": 1},
        "http_max_log_lines": {"http_max_log_lines": 1},
        "http_require_idempotency_key": {"http_require_idempotency_key": True},
        "http_wait": {"http_wait": 1},
        "http_longest_wait": {"http_longest_wait": 1},
        "http_drain": {"http_drain": 1},
    }
    assert changed.keys() == HttpSettings.model_fields.keys()
    for name, given in changed.items():
        before = {each: value for each, value in given.items() if each != name}
        if name in OIDC | CERTIFICATES:
            before = {}
        settings = [Settings(**each) for each in (before, given)]
        seen = [(access_options(each), http_options(each)) for each in settings]
        assert seen[0] != seen[1], name


async def test_the_application_has_them(dsn: str) -> None:
    """Its access and its options, on the socket that was asked for."""
    settings = Settings(http_require_idempotency_key=True, http_rate=1, http_burst=7)
    client = Client(dsn)
    async with (
        guarded(client, settings, host="127.0.0.1", port=0) as serving,
        httpx.AsyncClient(base_url=serving.url, timeout=60) as http,
    ):
        refused = await http.post("/v1/namespaces/nowhere/processes/p/calls/x")
        assert refused.headers["RateLimit-Policy"] == '"caller";q=7;w=7'
    assert serving.client is client
