"""The sink of NATS JetStream: events in a stream, each process in order, at least once. The extra `nats`.

Rule: of each process one message is under way, and the next one goes once the stream has it; processes go
side by side. So no failure can leave a gap. A connection that failed is thrown away with all that it would
still send. What the server had received by then makes the repetition a duplicate, which the stream drops by
its `Nats-Msg-Id`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic_core import to_json

from progressor.client.results import FeedEvent
from progressor.errors import InvalidRequest, NonRetryable
from progressor.sinks import cloudevents

if TYPE_CHECKING:
    from nats.aio.client import Client as Connection
    from nats.js import JetStreamContext

_PREFIX: Final = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
_SERVER = re.compile(r"(nats|tls|ws|wss)://[^@/\s]+/?")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_MOST_AT_ONCE = 256
# Seconds.
_LONGEST_CLOSE = 5.0
# JSStreamMessageExceedsMaximumErr of the server.
_LARGER_THAN_THE_STREAM_ALLOWS: Final = 10054


class NatsOptions(BaseModel):
    """A sink of the type `nats`, as its table in TOML names it.

    `servers` is `nats://host:port`, with commas between several. `subject` is what all subjects begin with.
    `timeout`, in seconds, is how long one `send` tries. Log in with `user` and `password`, with `token`, or
    with a file of `credentials`; `tls_ca`, `tls_certificate` and `tls_key` are files too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    type: Literal["nats"] = "nats"
    servers: str
    subject: str = Field(default="progressor", pattern=_PREFIX)
    timeout: float = Field(default=30, gt=0, le=3600)
    user: str | None = None
    password: SecretStr | None = None
    token: SecretStr | None = None
    credentials: Path | None = None
    tls_ca: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None

    @field_validator("servers")
    @classmethod
    def _check_servers(cls, servers: str) -> str:
        if not all(_SERVER.fullmatch(each.strip()) for each in servers.split(",")):
            raise ValueError("must be nats://host:port, with commas between several, and without a user")
        return servers

    @property
    def urls(self) -> list[str]:
        return [each.strip() for each in self.servers.split(",")]

    def open(self) -> NatsSink:
        """Return the sink; InvalidRequest if the extra or a file is missing."""
        return NatsSink(self)


class NatsMessage(NamedTuple):
    """An event as a message of JetStream, in the structured mode of CloudEvents."""

    shown: str
    subject: str
    body: bytes
    headers: dict[str, str]

    @property
    def size(self) -> int:
        """The bytes that count against the server's limit: headers and body."""
        lines = sum(len(f"{name}: {value}\r\n") for name, value in self.headers.items())
        return len("NATS/1.0\r\n") + lines + len("\r\n") + len(self.body)


def message_of(prefix: str, event: FeedEvent) -> NatsMessage:
    """Return the message of an event."""
    found, data = cloudevents.attributes(event), cloudevents.data(event)
    envelope = to_json(found)
    # A stream looks at no subject: of two sinks it would drop what the second one sends.
    named = f"{prefix}/{found['id']}"
    body = envelope[:-1] + b',"data":' + data + b"}" if data else envelope
    return NatsMessage(
        shown=cloudevents.shown(event),
        subject=subject_of(prefix, event),
        body=body,
        # An id may have any character; a header may not.
        headers={"Nats-Msg-Id": quote(named, safe="/:"), "Content-Type": cloudevents.MEDIA_TYPE},
    )


def subject_of(prefix: str, event: FeedEvent) -> str:
    """Return `prefix.namespace.name`, where the name is one token.

    Of a name each byte is `%XX` that is no letter, digit, `_` or `-` of ASCII. The dots of a namespace part
    tokens; an empty one is `%`. The name of what is no event is its kind; of a deleted event, `deleted`.
    """
    last = event.name or ("deleted" if event.is_deleted else event.kind)
    return ".".join([prefix, *map(_token, event.namespace.split(".")), _token(last)])


def _token(text: str) -> str:
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text) or "%"


class NatsSink:
    """A sink of NATS JetStream. Make it with `NatsOptions.open`."""

    def __init__(self, options: NatsOptions) -> None:
        self._options = options
        self._settings = _settings(options)
        self._connection: Connection | None = None
        self._lost = asyncio.Event()
        self._trouble = ""
        _library()

    def __repr__(self) -> str:
        return f"<NatsSink of subject {self._options.subject}>"

    async def send(self, events: Sequence[FeedEvent]) -> None:
        """Send these; return once their streams have stored all.

        Raises NonRetryable if one is larger than the server or its stream allows; ConnectionError if they
        are not all accepted within `timeout`, or no stream takes a subject.
        """
        chains: dict[tuple[str, str], list[NatsMessage]] = {}
        for event in events:
            message = message_of(self._options.subject, event)
            chains.setdefault((event.namespace, event.process_id), []).append(message)
        if not chains:
            return
        try:
            async with asyncio.timeout(self._options.timeout):
                await self._send_all(list(chains.values()))
        except TimeoutError:
            await self.close()
            last = f"; its last error: {self._trouble}" if self._trouble else ""
            raise ConnectionError(
                f"NATS has not accepted all within {self._options.timeout:g} s{last}"
            ) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Let go of the connection, and of what waits in it; the next `send` makes another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(TimeoutError, OSError, _library().errors.Error):
                async with asyncio.timeout(_LONGEST_CLOSE):
                    await connection.close()

    async def _send_all(self, chains: list[list[NatsMessage]]) -> None:
        connection = await self._connected()
        for chain in chains:
            for message in chain:
                if message.size > connection.max_payload:
                    raise NonRetryable(f"{message.shown} is larger than max_payload of the server")
        stream = connection.jetstream(timeout=self._options.timeout)
        places = asyncio.Semaphore(_MOST_AT_ONCE)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch())
                sending = [group.create_task(self._send_chain(stream, chain, places)) for chain in chains]
                await asyncio.wait(sending)
                watching.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _watch(self) -> None:
        """Raise if the connection is lost: nothing that it waits for will come."""
        await self._lost.wait()
        last = f": {self._trouble}" if self._trouble else ""
        raise ConnectionError(f"the connection to NATS is lost{last}")

    async def _send_chain(
        self, stream: JetStreamContext, chain: list[NatsMessage], places: asyncio.Semaphore
    ) -> None:
        """Send the messages of one process, each once the one before it is stored."""
        async with places:
            for message in chain:
                await self._publish(stream, message)

    async def _publish(self, stream: JetStreamContext, message: NatsMessage) -> None:
        errors, js = _library().errors, _library().js.errors
        try:
            await stream.publish(message.subject, message.body, headers=message.headers)
        except js.NoStreamResponseError:
            raise ConnectionError(
                f"no stream of JetStream takes the subject {message.subject}: create one, such as "
                f"`nats stream add events --subjects '{self._options.subject}.>'`"
            ) from None
        except js.APIError as error:
            why = f"NATS refuses {message.shown}: {error.description} ({error.err_code})"
            is_never = error.err_code == _LARGER_THAN_THE_STREAM_ALLOWS
            raise NonRetryable(why) if is_never else ConnectionError(why) from None
        except errors.Error as error:
            raise ConnectionError(f"NATS: {_why(error)}") from None

    async def _connected(self) -> Connection:
        if self._connection is not None and not self._lost.is_set():
            return self._connection
        await self.close()
        self._lost, self._trouble = asyncio.Event(), ""
        self._connection = _library().aio.client.Client()
        try:
            await self._connect(self._connection, self._lost)
        except (OSError, TimeoutError, _library().errors.Error) as error:
            raise ConnectionError(f"NATS cannot be reached: {self._trouble or _why(error)}") from None
        return self._connection

    async def _connect(self, connection: Connection, lost: asyncio.Event) -> None:
        async def closed() -> None:
            lost.set()

        async def failed(error: Exception) -> None:
            self._trouble = _why(error)

        await connection.connect(
            self._options.urls,
            name="progressor sink",
            # One that connects anew by itself sends what it had before, whoever has given that up.
            allow_reconnect=False,
            # Of each server, before the first connection.
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=max(1, round(self._options.timeout / len(self._options.urls) / 2)),
            closed_cb=closed,
            error_cb=failed,
            **self._settings,
        )


def _settings(options: NatsOptions) -> Mapping[str, Any]:
    settings: dict[str, Any] = {}
    if options.user is not None:
        settings["user"] = options.user
    if options.password is not None:
        settings["password"] = options.password.get_secret_value()
    if options.token is not None:
        settings["token"] = options.token.get_secret_value()
    if options.credentials is not None:
        settings["user_credentials"] = str(_there("credentials", options.credentials))
    if options.tls_ca is not None or options.tls_certificate is not None:
        settings["tls"] = _tls(options)
    return settings


def _tls(options: NatsOptions) -> ssl.SSLContext:
    authority = None if options.tls_ca is None else _there("tls_ca", options.tls_ca)
    try:
        context = ssl.create_default_context(cafile=authority)
        if options.tls_certificate is not None:
            certificate = _there("tls_certificate", options.tls_certificate)
            context.load_cert_chain(certificate, options.tls_key)
    except OSError as error:
        raise InvalidRequest(f"tls: {error.strerror or error}", field="tls") from None
    return context


def _there(field: str, path: Path) -> Path:
    if not path.is_file():
        raise InvalidRequest(f"{field}: there is no file {path}", field=field)
    return path


def _why(error: BaseException) -> str:
    return str(error).removeprefix("nats: ") or type(error).__name__


def _library() -> Any:
    try:
        import nats  # noqa: PLC0415 - the extra
        import nats.aio.client  # noqa: PLC0415 - the extra
        import nats.errors  # noqa: PLC0415 - the extra
        import nats.js.errors  # noqa: PLC0415 - the extra
    except ImportError:
        raise InvalidRequest(
            "a sink of the type nats needs the extra: pip install 'progressor-engine[nats]'", field="type"
        ) from None
    return nats
