"""A connection to a broker: requests go out in order, each response comes as one buffer.

aiokafka connects, encrypts, authenticates and asks for the versions; then this takes the connection
over. A response is received into a buffer of its own size, so that its records need no copy.

What the brokers say of the cluster is kept as immutable values, published whole.
"""

from __future__ import annotations

import asyncio
import base64
import io
import uuid
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import Any, Final, NamedTuple, Self

from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.helpers import create_ssl_context
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseTopic
from kio.serial import entity_writer
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload

from app.settings import Settings
from app.store.kafka.errors import NoAnswer, NotTrusted
from engine.checkpoint.kafka_files import format_topic_id
from engine.errors import InvalidConfig

CLIENT_ID: Final = "tidelog"
SIZE_BYTES: Final = 4
MAX_RESPONSE_BYTES: Final = 1 << 30
"""A longer response is not Kafka's."""


_HINT: Final = " at once; it may demand another kafka_security_protocol"


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Waiting(NamedTuple):
    """A request that has been sent, and when its time is over by the loop's clock."""

    correlation_id: int
    deadline: float
    response: asyncio.Future[memoryview]


class Connection(asyncio.BufferedProtocol):
    """Frames requests and responses. Belongs to the event loop."""

    def __init__(self, made: AIOKafkaConnection, *, timeout_ms: int) -> None:
        """Take over a connection that aiokafka has made."""
        self._name = f"{made.host}:{made.port}"
        self._versions: dict[int, tuple[int, int]] = made._versions  # noqa: SLF001  # what aiokafka has asked for
        self._timeout_seconds = timeout_ms / 1000
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._size = bytearray(SIZE_BYTES)
        self._buffer = self._size
        self._filled_bytes = 0
        self.is_open = True
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection has ended; with TLS that takes a round trip."""
        self._hint = _HINT
        self._stream = made._writer  # noqa: SLF001  # keeps the transport open
        made._read_task.cancel()  # noqa: SLF001  # as above
        made._reader = made._writer = None  # noqa: SLF001  # as above
        transport = self._stream.transport
        transport.pause_reading()  # or uvloop would go on with the old protocol's callbacks
        transport.set_protocol(self)
        transport.resume_reading()
        self._transport = transport

    def send(
        self, request: RequestPayload, *, has_response: bool = True
    ) -> asyncio.Future[memoryview]:
        """Send a request; the future gets the response after its size, or NoAnswer.

        Without a response, it gets an empty one at once. Raises NoAnswer if nothing was sent, and
        InvalidConfig if the broker does not know the request's version.
        """
        self._ensure_known(request)
        if not self.is_open or self._transport.is_closing():
            raise NoAnswer(f"{self._name} has closed the connection", was_sent=False)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._transport.write(_frame(request, self._correlation_id))
        loop = asyncio.get_running_loop()
        response: asyncio.Future[memoryview] = loop.create_future()
        if not has_response:
            response.set_result(memoryview(b""))
            return response
        deadline = loop.time() + self._timeout_seconds
        self._waiting.append(_Waiting(self._correlation_id, deadline, response))
        if self._timer is None:
            self._timer = loop.call_at(deadline, self._sweep)
        return response

    def _ensure_known(self, request: RequestPayload) -> None:
        key, version = int(request.__api_key__), int(request.__version__)
        lowest, highest = self._versions.get(key, (0, -1))
        if not lowest <= version <= highest:
            raise InvalidConfig(
                f"the broker at {self._name} knows versions {lowest} to {highest} of "
                f"{type(request).__name__}, not {version}: tidelog needs Kafka 3.5 or later"
            )

    def close(self, why: str = "the connection is closed") -> None:
        """Close the connection; what waits for a response gets NoAnswer."""
        self.is_open = False
        self._stream.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            if not one.response.done():
                one.response.set_exception(NoAnswer(f"{self._name}: {why}", was_sent=True))

    def _sweep(self) -> None:
        """Close the connection if the oldest request has no response in time."""
        self._timer = None
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        deadline = self._waiting[0].deadline
        if loop.time() >= deadline:
            self.close(f"no response within {self._timeout_seconds:g} s")
        else:
            self._timer = loop.call_at(deadline, self._sweep)

    # -- asyncio's calls ---------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the frame's size is known
        return memoryview(self._buffer)[self._filled_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled_bytes += nbytes
        if self._filled_bytes < len(self._buffer):
            return
        self._filled_bytes = 0
        if self._buffer is self._size:
            size_bytes = int.from_bytes(self._size, "big", signed=True)
            if not SIZE_BYTES <= size_bytes <= MAX_RESPONSE_BYTES:
                self.close(f"a response of {size_bytes} bytes is not Kafka's")
                return
            self._buffer = bytearray(size_bytes)
            return
        frame, self._buffer = self._buffer, self._size
        self._received(frame)

    def _received(self, frame: bytearray) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            self.close("a response that belongs to no request")
            return
        self._hint = ""
        response = self._waiting.popleft().response
        if not response.done():  # the caller may have been cancelled
            response.set_result(memoryview(frame).toreadonly())

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(str(exc) if exc else f"the broker has closed the connection{self._hint}")
        self.closed.set_result(None)


def _frame(request: RequestPayload, correlation_id: int) -> bytes:
    """Return a request with its size and header."""
    buffer = io.BytesIO(bytes(SIZE_BYTES))
    buffer.seek(SIZE_BYTES)
    schema: Any = request.__header_schema__
    header = schema(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(correlation_id),
        client_id=CLIENT_ID,
    )
    entity_writer(schema)(buffer, header)
    entity_writer(type(request))(buffer, request)
    size_bytes = buffer.tell() - SIZE_BYTES
    buffer.seek(0)
    buffer.write(size_bytes.to_bytes(SIZE_BYTES, "big"))
    return buffer.getvalue()


class _FileToken(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka ships no types
    """The OAuth token in a file, which another program renews; read for each connection."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def token(self) -> str:
        """Return the token; raises NoAnswer if the file cannot be read."""
        try:
            return (await asyncio.to_thread(self._path.read_text)).strip()
        except (OSError, UnicodeDecodeError) as error:
            why = f"kafka_oauth_token_file cannot be read: {type(error).__name__}"
            raise NoAnswer(why, was_sent=False) from error


class _TokenAuthenticator(OAuthAuthenticator):  # type: ignore[misc]  # as above
    """Notices that a broker refuses a token: aiokafka takes any answer for success.

    The broker's first answer says so without an error code; the error follows when the client has
    answered with one byte (RFC 7628, section 3.2.3).
    """

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        if payload:
            return b"\x01", True
        following: tuple[bytes, bool] | None = await super().step(payload)
        return following


class _Connection(AIOKafkaConnection):  # type: ignore[misc]  # as above
    """What aiokafka connects with, but for tokens and for its end."""

    def close(
        self, reason: object = None, exc: Exception | None = None
    ) -> asyncio.Future[None] | None:
        """Abort a connection that was not handed over: a TLS close would delay the stop."""
        if self._writer is not None:
            self._writer.transport.abort()
        closed: asyncio.Future[None] | None = super().close(reason, exc)
        return closed

    def authenticator_oauth(self) -> _TokenAuthenticator:
        provider = self._sasl_oauth_token_provider
        return _TokenAuthenticator(sasl_oauth_token_provider=provider)


class Connector:
    """Opens connections as the settings say."""

    def __init__(self, settings: Settings) -> None:
        """Read certificates; raises InvalidConfig if they cannot be used."""
        self._timeout_ms = settings.kafka_request_timeout_ms
        self._is_closed = False
        protocol = settings.kafka_security_protocol
        self.security: dict[str, object] = {"security_protocol": protocol}
        if protocol.endswith("SSL"):
            try:
                self.security["ssl_context"] = create_ssl_context(
                    cafile=settings.kafka_tls_ca,
                    certfile=settings.kafka_tls_cert,
                    keyfile=settings.kafka_tls_key,
                    password="",  # otherwise OpenSSL asks for that of an encrypted key
                )
            except (OSError, ValueError) as error:
                raise InvalidConfig(f"the TLS files for Kafka cannot be used: {error}") from error
        if protocol.startswith("SASL"):
            self.security |= {
                "sasl_mechanism": settings.kafka_sasl_mechanism,
                "sasl_plain_username": settings.kafka_sasl_username,
                "sasl_plain_password": settings.kafka_sasl_password.get_secret_value(),
            }
            if settings.kafka_oauth_token_file is not None:
                token = _FileToken(settings.kafka_oauth_token_file)
                self.security["sasl_oauth_token_provider"] = token

    def close(self) -> None:
        """Open no more connections, for example for a read whose caller has left."""
        self._is_closed = True

    async def connect(self, address: Address) -> Connection:
        """Return a connection that is authenticated; raises NoAnswer, and NotTrusted."""
        if self._is_closed:
            raise NoAnswer("the service is stopping", was_sent=False)
        made = _Connection(
            address.host,
            address.port,
            client_id=CLIENT_ID,
            request_timeout_ms=self._timeout_ms,
            **self.security,
        )
        try:
            await made.connect()
        except SSLCertVerificationError as error:
            why = f"{address}: the broker's certificate is not accepted: {error.verify_message}"
            raise NotTrusted(why, was_sent=False) from error
        except (SaslAuthenticationFailed, UnsupportedSaslMechanismError, *_UNREADABLE) as error:
            raise NotTrusted(f"{address}: {self._refusal(error)}", was_sent=False) from error
        except TimeoutError as error:
            why = f"{address}: no connection within {self._timeout_ms / 1000:g} s"
            raise NoAnswer(why, was_sent=False) from error
        except KafkaConnectionError as error:
            why = f"{address}: the broker has closed the connection{_HINT}"
            raise NoAnswer(why, was_sent=False) from error
        except (OSError, KafkaError, EOFError) as error:
            raise NoAnswer(f"{address}: {error or type(error).__name__}", was_sent=False) from error
        return Connection(made, timeout_ms=self._timeout_ms)

    def _refusal(self, error: Exception) -> str:
        mechanism = self.security.get("sasl_mechanism")
        if isinstance(error, SaslAuthenticationFailed):
            return f"the broker refuses the {mechanism} credentials: {error.args[0]}"
        if isinstance(error, UnsupportedSaslMechanismError):
            return f"the broker does not offer the SASL mechanism {mechanism}"
        return "what listens there does not answer as a broker does"


_UNREADABLE: Final = (ValueError, KeyError, AssertionError)
"""What aiokafka raises for a response that is not valid, of SCRAM above all."""


ALL_TOPICS: Final = MetadataRequest(
    topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
)

NO_NODE: Final = -1


class Leader(NamedTuple):
    """The broker that leads a partition, and since which epoch."""

    node: int
    """-1 if there is none at present."""
    epoch: int


class TopicLeaders(NamedTuple):
    """A topic with the leader of each partition."""

    topic_id: str
    leaders: tuple[Leader, ...]


class Metadata(NamedTuple):
    """The brokers and topics of one moment."""

    brokers: Mapping[int, Address]
    topics: Mapping[str, TopicLeaders]
    """Internal ones too."""

    @classmethod
    def of(cls, response: MetadataResponse) -> Self:
        return cls(
            {int(one.node_id): Address(one.host, int(one.port)) for one in response.brokers},
            {
                str(one.name): _topic(one)
                for one in response.topics
                if one.error_code is ErrorCode.none and one.name and one.topic_id
            },
        )


EMPTY: Final = Metadata({}, {})


def uuid_of(topic_id: str) -> uuid.UUID:
    """Return a topic id as the protocol has it."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "=="))


def _topic(topic: MetadataResponseTopic) -> TopicLeaders:
    assert topic.topic_id is not None, "only topics with an id are taken"
    by_number = {int(one.partition_index): one for one in topic.partitions}
    leaders = []
    for number in range(max(by_number, default=-1) + 1):
        one = by_number.get(number)
        known = one is not None and one.error_code is not ErrorCode.leader_not_available
        leaders.append(
            Leader(int(one.leader_id), int(one.leader_epoch))
            if one is not None and known
            else Leader(NO_NODE, -1)
        )
    return TopicLeaders(format_topic_id(topic.topic_id.bytes), tuple(leaders))
