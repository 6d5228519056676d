"""WebhookSink: events sent to a URL, each as one request that its receiver can verify.

Rule: neither a secret nor a path, a user or a password of the URL is in a repr, a log or an error. httpx
writes URLs to its log, so requests go to its transport, which writes none, and knows neither redirects nor
cookies nor proxies. They name the address that was checked; certificates and hosts stay those of the name.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from progressor.client.results import FeedEvent
from progressor.errors import InvalidRequest, NonRetryable
from progressor.inputs import check_count, check_seconds
from progressor.release import VERSION
from progressor.sinks.addresses import is_public, resolve
from progressor.sinks.cloudevents import MEDIA_TYPE, structured
from progressor.sinks.failures import SinkUnreachable
from progressor.sinks.signing import WebhookSigner

try:
    import httpx
except ModuleNotFoundError as missing:
    if missing.name != "httpx":
        raise
    raise ImportError(
        "WebhookSink needs the extra `webhooks`: pip install 'progressor-engine[webhooks]'"
    ) from None

DEFAULT_TIMEOUT: Final = timedelta(seconds=15)
"""For how long a receiver may take to answer: the least that Standard Webhooks advise."""
DEFAULT_PARALLEL: Final = 8
"""The requests that are under way at once."""

_MOST_PARALLEL = 256
# Bytes and seconds. Of an answer its status counts; the rest is read, so that its connection can go on.
_MOST_READ, _LONGEST_READ = 16 * 1024, 1.0
# Of a receiver that asks for more: nobody would see that events wait for years.
_LONGEST_RETRY_AFTER = timedelta(days=1)
_HOST, _LAST_PORT = re.compile(rb"[0-9A-Za-z._:-]+"), 65_535
_SENT_AGAIN = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}


class WebhookRefused(NonRetryable):
    """The receiver will never accept the event at `position`: it answered with `status`."""

    def __init__(self, origin: str, status: int, position: str) -> None:
        is_redirect = HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST
        why = ": redirects are not followed" if is_redirect else ""
        super().__init__(f"{origin} refused the event at position {position} with status {status}{why}")
        self.status = status
        self.position = position


class WebhookSink:
    """A sink that posts each event to a URL, as JSON of CloudEvents, signed as Standard Webhooks say.

    Events of a process are posted one after the other, those of up to `parallel` processes at once. Each
    of the `secrets` signs every request. A receiver has `timeout` to answer: with 2xx it has accepted the
    event. 408, 429, 5xx and no answer raise SinkUnreachable, any other status WebhookRefused.

    Only addresses of the public internet are connected to, by https alone. With `allow_private` any are,
    also by http. `ca_file` has the certificates of the authorities to trust, in place of the usual ones.
    Raise InvalidRequest for what cannot be used.
    """

    def __init__(
        self,
        url: str,
        secrets: Iterable[str],
        *,
        timeout: timedelta = DEFAULT_TIMEOUT,
        parallel: int = DEFAULT_PARALLEL,
        allow_private: bool = False,
        ca_file: Path | str | None = None,
    ) -> None:
        self._signer = WebhookSigner(secrets)
        self._seconds = check_seconds("timeout", timeout)
        self._parallel = check_count("parallel", parallel, least=1, most=_MOST_PARALLEL)
        self._allow_private = allow_private
        self._url = _checked_url(url, allow_private=allow_private)
        self._origin = f"{self._url.scheme}://{self._url.netloc.decode()}"
        self._headers = _headers_of(self._url)
        self._tls = _tls_of(ca_file)
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._address: str | None = None

    async def send(self, events: Sequence[FeedEvent]) -> None:
        """Post these, those of a process in their order; return once the receiver has accepted all.

        After a failure no other request begins. If some events are refused, and others are to be sent
        again, the latter is raised: the receiver may ask to be left alone.
        """
        queues: dict[tuple[str, str], list[FeedEvent]] = {}
        for event in events:
            queues.setdefault((event.namespace, event.process_id), []).append(event)
        if not queues:
            return
        addresses = await self._addresses()
        failures: list[SinkUnreachable | NonRetryable] = []
        waiting = iter(queues.values())
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._parallel, len(queues))):
                group.create_task(self._post_all(waiting, addresses, failures))
        if failures:
            raise _gravest(failures)

    async def close(self) -> None:
        """Close all connections."""
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()

    def __repr__(self) -> str:
        """Show the host that it sends to, and no more of its URL."""
        return f"<WebhookSink of {self._origin}>"

    async def _post_all(
        self,
        waiting: Iterator[list[FeedEvent]],
        addresses: Sequence[str],
        failures: list[SinkUnreachable | NonRetryable],
    ) -> None:
        for queue in waiting:
            for event in queue:
                if failures:
                    return
                try:
                    await self._post(event, addresses)
                except (SinkUnreachable, NonRetryable) as failure:
                    failures.append(failure)

    async def _addresses(self) -> list[str]:
        """Return the addresses to connect to, first the one that answered last."""
        try:
            async with asyncio.timeout(self._seconds):
                found = await resolve(_host_of(self._url), _port_of(self._url))
        except OSError as error:
            # A TimeoutError too.
            why = type(error).__name__
            raise SinkUnreachable(f"{self._origin} cannot be resolved: {why}") from None
        usable = [each for each in found if self._allow_private or is_public(each)]
        if not usable:
            # Of a name, this is so now: no event is given up for it.
            raise SinkUnreachable(
                f"{self._origin} is not connected to: it has none but private or reserved addresses, "
                "which need allow_private"
            )
        return sorted(usable, key=lambda each: each != self._address)

    async def _post(self, event: FeedEvent, addresses: Sequence[str]) -> None:
        body = structured(event)
        # The receiver compares it with its own clock.
        now = int(datetime.now(UTC).timestamp())
        headers = {**self._headers, **self._signer.headers(event.id, now, body)}
        try:
            async with asyncio.timeout(self._seconds):
                response = await self._exchange(headers, body, addresses)
        except TimeoutError:
            text = f"{self._origin} did not answer within {self._seconds:g} seconds"
            raise SinkUnreachable(text) from None
        except httpx.HTTPError as error:
            # Only of TLS the text is told, as a certificate is for people to mend. It has no URL in it.
            why = str(error) if "SSL" in str(error) else type(error).__name__
            raise SinkUnreachable(f"{self._origin} cannot be reached: {why}") from None
        try:
            await _read_some(response)
        finally:
            await response.aclose()
        status = response.status_code
        if status in _SENT_AGAIN or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            after = _retry_after(response.headers)
            raise SinkUnreachable(f"{self._origin} answered with status {status}", retry_after=after)
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            raise WebhookRefused(self._origin, status, event.position)

    async def _exchange(
        self, headers: dict[str, str], body: bytes, addresses: Sequence[str]
    ) -> httpx.Response:
        """Send a request to the first address that takes connections; return the head of the answer."""
        *others, last = addresses
        for address in others:
            with suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await self._exchange_with(address, headers, body, self._seconds / len(addresses))
        return await self._exchange_with(last, headers, body, self._seconds)

    async def _exchange_with(
        self, address: str, headers: dict[str, str], body: bytes, connect: float
    ) -> httpx.Response:
        if self._transport is None:
            self._transport = httpx.AsyncHTTPTransport(
                verify=self._tls, trust_env=False, limits=httpx.Limits(max_connections=self._parallel)
            )
        url = self._url
        request = httpx.Request(
            "POST",
            httpx.URL(scheme=url.scheme, host=address, port=url.port, raw_path=url.raw_path),
            headers=headers,
            content=body,
            extensions={
                "sni_hostname": _host_of(url),
                "timeout": httpx.Timeout(None, connect=connect).as_dict(),
            },
        )
        response = await self._transport.handle_async_request(request)
        self._address = address
        return response


class WebhookOptions(BaseModel):
    """The options of a sink of the type `webhook`; the texts of errors have no value in them."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    type: Literal["webhook"]
    url: SecretStr
    """Where to post to. It may have a user and a password, and often its path is a secret."""
    secrets: list[SecretStr]
    """The secrets that sign, `whsec_…`: one, or two while the receiver changes to another."""
    timeout: timedelta = DEFAULT_TIMEOUT
    """For how long the receiver may take to answer, in seconds."""
    parallel: int = Field(default=DEFAULT_PARALLEL, ge=1, le=_MOST_PARALLEL)
    """The processes whose events are posted at once."""
    allow_private: bool = False
    """True to connect to private addresses too, and by http."""
    ca_file: Path | None = None
    """The certificates of the authorities to trust, in place of the usual ones."""

    @model_validator(mode="after")
    def _can_be_opened(self) -> WebhookOptions:
        # InvalidRequest is a ValueError, which pydantic makes a fault of.
        self.open()
        return self

    def open(self) -> WebhookSink:
        """Return the sink; it connects at its first event."""
        return WebhookSink(
            self.url.get_secret_value(),
            [each.get_secret_value() for each in self.secrets],
            timeout=self.timeout,
            parallel=self.parallel,
            allow_private=self.allow_private,
            ca_file=self.ca_file,
        )


def _checked_url(text: object, *, allow_private: bool) -> httpx.URL:
    try:
        url = httpx.URL(text) if isinstance(text, str) else None
    except httpx.InvalidURL:
        url = None
    is_one = url is not None and _HOST.fullmatch(url.raw_host) and (url.port or 1) <= _LAST_PORT
    if url is None or not is_one or url.scheme not in ("http", "https"):
        raise InvalidRequest("url must be that of a host: https://…", field="url")
    if url.scheme == "http" and not allow_private:
        raise InvalidRequest("url must begin with https: http needs allow_private", field="url")
    return url


def _headers_of(url: httpx.URL) -> dict[str, str]:
    headers = {
        "host": url.netloc.decode(),
        "content-type": MEDIA_TYPE,
        "accept-encoding": "identity",
        "user-agent": f"progressor/{VERSION}",
    }
    if url.userinfo:
        pair = f"{url.username}:{url.password}".encode()
        headers["authorization"] = f"Basic {b64encode(pair).decode()}"
    return headers


def _tls_of(ca_file: Path | str | None) -> ssl.SSLContext:
    if ca_file is None:
        return httpx.create_ssl_context()
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        # An SSLError too.
        why = error.strerror or "it has no certificate"
        raise InvalidRequest(f"ca_file cannot be read: {why}", field="ca_file") from None


def _host_of(url: httpx.URL) -> str:
    return url.raw_host.decode()


def _port_of(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _gravest(failures: Sequence[SinkUnreachable | NonRetryable]) -> SinkUnreachable | NonRetryable:
    """Return what to raise: first that a receiver is to be left alone, for the longest time asked for."""
    unreachable = [each for each in failures if isinstance(each, SinkUnreachable)]
    if unreachable:
        return max(unreachable, key=lambda each: each.retry_after or timedelta())
    return failures[0]


def _retry_after(headers: httpx.Headers) -> timedelta | None:
    """Return what a receiver asks for: seconds, or a time, which is one of its own clock."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        # A longer number may be none that a timedelta can hold.
        return min(timedelta(seconds=int(text[:9])), _LONGEST_RETRY_AFTER)
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return None
    return min(max(wait, timedelta()), _LONGEST_RETRY_AFTER)


async def _read_some(response: httpx.Response) -> None:
    """Read an answer to its end, if that comes soon."""
    size = 0
    with suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(_LONGEST_READ):
            async for part in response.aiter_raw():
                size += len(part)
                if size > _MOST_READ:
                    return
