"""The HTTP API's application, from its settings: access, rates, and limits of its answers.

Rule: half a setting is refused, with the name of the variable that is missing or wrong.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from socket import socket
from typing import Any

from progressor.client.client import Client
from progressor.deployment.http_settings import HttpSettings
from progressor.deployment.settings import PREFIX, Settings
from progressor.errors import InvalidRequest
from progressor.http.server.app import make_app
from progressor.http.server.auth.authenticator import AccessOptions, Authenticator
from progressor.http.server.auth.client_certificates import Certificates, networks
from progressor.http.server.auth.oidc import Provider
from progressor.http.server.auth.origins import allowed_hosts
from progressor.http.server.auth.rate_limit import CallerRate
from progressor.http.server.options import HttpOptions
from progressor.http.server.serve import ApiServer
from progressor.loggers import Logger
from progressor.rights import Rights, check_patterns, check_scopes

log = Logger("progressor.cli")


def guarded(
    client: Client,
    settings: Settings,
    *,
    host: str,
    port: int,
    listener: socket | None = None,
    make: Callable[..., Any] = make_app,
    what: str = "api",
) -> ApiServer:
    """Return the API over this client, for the callers that these settings let in.

    Or the console, for the same callers: `make` is the function that makes it, which only those import who
    have its extra. InvalidRequest names a variable.
    """
    access = access_options(settings)
    if access.insecure_no_auth:
        log.info("everybody is let in", extra={"setting": "http_insecure_no_auth"})
    app = make(client, access=Authenticator(client.tokens, access), options=http_options(settings))
    return ApiServer(client, app, host=host, port=port, listener=listener, what=what)


def http_options(settings: Settings) -> HttpOptions:
    """Return the options of the API's answers, from these settings."""
    return HttpOptions(
        wait=settings.http_wait.total_seconds(),
        longest_wait=settings.http_longest_wait.total_seconds(),
        drain=settings.http_drain.total_seconds(),
        max_value_bytes=settings.max_value_bytes,
        max_requests=settings.http_max_requests,
        max_watches=settings.http_max_watches,
        max_connections=settings.http_max_connections,
        max_log_lines=settings.http_max_log_lines,
        require_idempotency_key=settings.http_require_idempotency_key,
    )


def access_options(settings: HttpSettings) -> AccessOptions:
    """Return the access options of these settings; InvalidRequest names a variable."""
    try:
        return AccessOptions(
            provider=_provider(settings),
            certificates=_certificates(settings),
            token_kept_for=settings.http_token_kept_for,
            rate=_rate(settings),
            insecure_no_auth=settings.http_insecure_no_auth,
            allowed_hosts=allowed_hosts("http_allowed_hosts", _listed(settings.http_allowed_hosts)),
        )
    except InvalidRequest as error:
        if error.field is None or not error.field.startswith("http_"):
            raise
        text = str(error).removeprefix(error.field).strip()
        raise InvalidRequest(f"{PREFIX}{error.field.upper()}: it {text}", field=error.field) from None


def _provider(settings: HttpSettings) -> Provider | None:
    if settings.http_oidc_issuer is None:
        for name in (
            "http_oidc_audience",
            "http_oidc_jwks_url",
            "http_oidc_scopes",
            "http_oidc_namespaces",
        ):
            if getattr(settings, name) is not None:
                raise _wrong("http_oidc_issuer", f"must be set, because {PREFIX}{name.upper()} is")
        return None
    if settings.http_oidc_audience is None:
        raise _wrong("http_oidc_audience", "must be set: a token for somebody else must not hold here")
    patterns = _listed(settings.http_oidc_namespaces)
    return Provider(
        issuer=settings.http_oidc_issuer,
        audience=settings.http_oidc_audience,
        jwks_url=settings.http_oidc_jwks_url,
        algorithms=_listed(settings.http_oidc_algorithms),
        scope_claims=_listed(settings.http_oidc_scope_claims),
        scopes={
            value: check_scopes("http_oidc_scopes", _texts("http_oidc_scopes", names))
            for value, names in _object("http_oidc_scopes", settings.http_oidc_scopes).items()
        },
        namespaces_claim=settings.http_oidc_namespaces_claim,
        namespaces=check_patterns("http_oidc_namespaces", patterns) if patterns else (),
    )


def _certificates(settings: HttpSettings) -> Certificates | None:
    names = ("http_certificate_header", "http_trusted_proxies", "http_certificates")
    given = [name for name in names if getattr(settings, name) is not None]
    for name in names:
        if given and name not in given:
            raise _wrong(name, f"must be set, because {PREFIX}{given[0].upper()} is")
    if settings.http_certificate_header is None:
        return None
    return Certificates(
        header=settings.http_certificate_header,
        proxies=networks("http_trusted_proxies", _listed(settings.http_trusted_proxies)),
        subjects={
            subject: _rights("http_certificates", rights)
            for subject, rights in _object("http_certificates", settings.http_certificates).items()
        },
    )


def _rate(settings: HttpSettings) -> CallerRate | None:
    if settings.http_rate is None:
        if settings.http_burst is not None:
            raise _wrong("http_rate", f"must be set, because {PREFIX}HTTP_BURST is")
        return None
    return CallerRate(settings.http_rate, settings.http_burst or max(1, math.ceil(2 * settings.http_rate)))


def _rights(field: str, rights: Any) -> Rights:
    if not isinstance(rights, dict) or {*rights} != {"scopes", "namespaces"}:
        raise _wrong(field, "must name scopes and namespaces of each subject, and nothing else")
    scopes, namespaces = _texts(field, rights["scopes"]), _texts(field, rights["namespaces"])
    return Rights(check_scopes(field, scopes), check_patterns(field, namespaces))


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _object(field: str, text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _wrong(field, "must be a JSON object")
    return value


def _texts(field: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _wrong(field, "must have lists of texts")
    return value


def _wrong(field: str, rule: str) -> InvalidRequest:
    return InvalidRequest(f"{field} {rule}", field=field)
