"""Which requests are hot, and what they have in common: from a complete head to one write.

Hot are ingest, and appends, reads and offsets of one partition. They are recognized by method and
URL, in the form that clients usually send. FastAPI explains every other URL, malformed or merely
unusual.

To uvicorn a hot request is the connection's cycle: uvicorn queues pipelined requests until
`response_complete`, reports a lost connection to the cycle, and reads `keep_alive` from it when the
server stops.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from time import perf_counter
from typing import Any, ClassVar, Final, NamedTuple

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.codecs.calls import (
    FAST_APPEND_CALLS,
    FAST_INGEST_CALLS,
    PARTITION,
    AppendCall,
    IngestCall,
    ReadCall,
    fast_read_call,
)
from app.http.answers import Answer, Headers, Scope
from app.http.problems import problem_answer
from app.http.request_checks import TRACE, trace_of
from app.operations.content_coding import coded
from app.operations.exchange import Exchange, holder_of
from app.operations.service import Service
from app.operations.wait import ClientGone
from app.security.authority import peer_of
from app.security.principal import Principal
from app.security.rules import CALLER_KEY
from app.store.port import Partition
from engine.errors import EngineError
from engine.fs.names import MAX_TOPIC_LENGTH
from engine.types import Buffer

INGEST: Final = "ingest"
"""The operation that senders without credentials may call."""

MAX_URLS: Final = 4_096
"""The number of cached request lines."""

_PATH: Final = re.compile(
    rf"/v1/topics/([a-zA-Z0-9._-]{{1,{MAX_TOPIC_LENGTH}}})"
    rf"/(?:partitions/({PARTITION.pattern})/(records|batches|offsets)|ingest)"
)
"""The spelling that `Link` and `Location` use. A name that no topic has would only take memory."""


class HotOperation(NamedTuple):
    """What a method and a URL ask for."""

    operation: str
    """The operationId, as it is counted and logged."""
    method: str
    path: str
    topic: str
    partition: int
    """The first for ingest, which chooses one later."""
    call: AppendCall | IngestCall | ReadCall | None
    """The parameters; None for `getOffsets`, which has none."""


class HotOperations(dict[bytes, HotOperation | None]):
    """The operation of each request line, such as `b"GET /v1/topics/…"`: a hit calls no function.

    None for what is not a hot operation in its usual spelling. Belongs to the event loop.
    """

    def __missing__(self, line: bytes) -> HotOperation | None:
        method, _, url = line.partition(b" ")
        operation = _parsed(method.decode(), url)
        if operation is not None:
            if len(self) >= MAX_URLS:
                self.clear()
            self[line] = operation
        return operation


def _parsed(method: str, url: bytes) -> HotOperation | None:
    target, _, query = url.partition(b"?")
    path = target.decode("latin-1")
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    topic, partition, kind = match[1], int(match[2] or 0), match[3] or "ingest"
    operation = _OPERATIONS.get((method, kind))
    if operation is None:
        return None
    call: AppendCall | IngestCall | ReadCall | None = None
    if kind == "offsets":
        if query:
            return None
    else:
        call = _parser_of(method, kind)(query)
        if call is None:
            return None
    return HotOperation(operation, method, path, topic, partition, call)


def _parser_of(
    method: str, kind: str
) -> Callable[[bytes], AppendCall | IngestCall | ReadCall | None]:
    """Return what parses a usual query string."""
    if kind == "ingest":
        return FAST_INGEST_CALLS.get
    return FAST_APPEND_CALLS.get if method == "POST" else partial(fast_read_call, kind)


_OPERATIONS: Final[Mapping[tuple[str, str], str]] = {
    ("POST", "records"): "appendRecords",
    ("POST", "batches"): "appendBatches",
    ("POST", "ingest"): INGEST,
    ("GET", "records"): "readRecords",
    ("GET", "batches"): "readBatches",
    ("GET", "offsets"): "getOffsets",
}


class RefusedExchange(NamedTuple):
    """What a refused request has in place of an exchange: it holds nothing."""

    head: Mapping[bytes, bytes]
    caller: Principal | None
    """None without valid credentials."""

    def close(self) -> None:
        """Do nothing."""


class Lane:
    """What the hot requests of one server share. Belongs to the event loop."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.operations = HotOperations()
        self.varies_by_origin = bool(service.settings.cors_origins)
        self._accepted_hosts = service.sites.accepted
        self._defaults: Headers = []
        self._preambles: dict[int, bytes] = {}

    def preamble(self, status: int, defaults: Headers) -> bytes:
        """Return the status line and the server's own headers, which change once a second."""
        if defaults is not self._defaults:
            self._defaults = defaults
            self._preambles.clear()
        preamble = self._preambles.get(status)
        if preamble is None:
            preamble = self._preambles[status] = STATUS_LINE[status] + lines_of(defaults)
        return preamble

    def is_named(self, connection: HttpToolsProtocol, fields: Mapping[bytes, bytes]) -> bool:
        """Whether the service answers under the request's `Host`."""
        host, server = fields.get(b"host"), connection.server
        if host in self._accepted_hosts:
            return True
        return host is not None and self.service.sites.accepts(host, server[0] if server else "")

    def let_in(
        self, connection: HttpToolsProtocol, asked: HotOperation, fields: Mapping[bytes, bytes]
    ) -> tuple[Partition, Exchange] | HotRefusal | None:
        """Return the partition of a request and its exchange, or its refusal.

        None leaves the request to FastAPI. `fields` are the headers by name. A request is
        authorized and charged once, and a refusal costs little.
        """
        service, headers = self.service, connection.headers
        if connection.flow.write_paused:
            return None
        try:
            partition = service.partition(asked.topic, asked.partition)
        except EngineError:
            return None
        peer = peer_of(connection.scope)
        caller: Principal | None = None
        try:
            if asked.operation == INGEST:
                caller = service.senders.enter(asked.topic, fields, peer=peer)
            if caller is None:
                caller = service.security.authorize(asked.operation, asked.topic, headers, peer)
            holder = holder_of(caller, connection.scope)  # type: ignore[arg-type]  # a TypedDict
            return partition, Exchange(service, fields, caller=caller, holder=holder)
        except Exception as error:  # noqa: BLE001  # every error has a problem document
            caller = caller or service.security.refused(error, asked.operation, headers, peer)
            return HotRefusal(self, connection, RefusedExchange(fields, caller), asked, error)


class HotRequest(ABC):
    """One request without a task or ASGI scope; its protocol calls these methods."""

    __slots__ = (
        "_connection",
        "_exchange",
        "_lane",
        "_operation",
        "_scope",
        "_started",
        "disconnected",
        "keep_alive",
        "response_complete",
    )

    message_event: ClassVar = asyncio.Event()
    """Set by uvicorn; not used."""

    def __init__(
        self,
        lane: Lane,
        connection: HttpToolsProtocol,
        exchange: Exchange | RefusedExchange,
        asked: HotOperation,
    ) -> None:
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True
        self._lane = lane
        self._connection = connection
        # The connection creates another one for the next request.
        self._scope: Scope = connection.scope  # type: ignore[assignment]  # a TypedDict
        self._exchange = exchange
        self._operation = asked.operation
        self._scope.update({"method": asked.method, "path": asked.path})
        if exchange.caller is not None:
            self._scope[CALLER_KEY] = exchange.caller
        self._started = perf_counter()

    def take(self, piece: bytes) -> None:  # noqa: B027  # a read has no body
        """Take a piece of the body, unless the request was refused."""

    def expect_rest(self) -> None:  # noqa: B027  # as above
        """Limit the wait for the rest of the body; called after each read."""

    @abstractmethod
    def finish(self) -> None:
        """Run the complete request."""

    @abstractmethod
    def leave(self) -> None:
        """Cancel the request: the client has disconnected."""

    def _start(self, rest: Coroutine[Any, Any, None]) -> None:
        """Run the rest in a task, which the server awaits when it stops."""
        tasks = self._connection.tasks
        task = self._connection.loop.create_task(rest)
        task.add_done_callback(tasks.discard)
        tasks.add(task)

    def _ensure_wanted(self) -> None:
        """Raise ClientGone once the connection is lost; called by the thread that does the work."""
        if self.disconnected:
            raise ClientGone

    async def _explain(self, error: Exception) -> None:
        if isinstance(error, ClientGone):
            self._close(0, 0)
            return
        await self._send_coded(self._problem(error))

    def _problem(self, error: Exception) -> Answer:
        """Return the problem document of an error, and count it."""
        self._lane.service.refusals.count(error, self._scope["path"])
        trace = trace_of(self._exchange.head)
        return problem_answer(error, path=self._scope["path"], trace=trace)

    async def _send_coded(self, answer: Answer) -> None:
        status, headers, body = await coded(self._lane.service, self._exchange.head, answer)
        self._send(status, lines_of(headers), body)

    def _send(self, status: int, head: bytes, body: Buffer) -> None:
        """Write the whole answer at once, release the request's resources, and count it."""
        connection = self._connection
        transport = connection.transport
        if not transport.is_closing():
            transport.write(b"".join((*self._head(status, head, len(body)), body)))
            if not self.keep_alive:
                transport.close()
        self._end(status, len(body))

    def _head(self, status: int, head: bytes, body_bytes: int) -> tuple[bytes, ...]:
        """Return the pieces of the whole head."""
        fields = self._exchange.head
        trace = trace_of(fields) if TRACE in fields else None
        if self._lane.varies_by_origin:
            head = _varying_by_origin(head)
        return (
            self._lane.preamble(status, self._connection.server_state.default_headers),
            head,
            b"content-length: %d\r\n" % body_bytes,
            b"" if trace is None else b"traceparent: %b\r\n" % trace,
            b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n",
        )

    def _end(self, status: int, sent_bytes: int) -> None:
        """Start the next request: this one is answered."""
        caller = self._exchange.caller
        if caller is not None and caller.meter is not None:
            caller.sent(sent_bytes, status)
        self._close(status, sent_bytes)
        self._connection.on_response_complete()

    def _close(self, status: int, sent_bytes: int) -> None:
        """Release the request's resources, and count it."""
        self.response_complete = True
        self._exchange.close()
        seconds = perf_counter() - self._started
        self._lane.service.journal.answered(
            self._operation, status, seconds, sent_bytes=sent_bytes, scope=self._scope
        )


class HotRefusal(HotRequest):
    """A refused request, answered at the end of the read that completed its head.

    The rest of its body is discarded.
    """

    __slots__ = ("_error",)

    def __init__(
        self,
        lane: Lane,
        connection: HttpToolsProtocol,
        exchange: RefusedExchange,
        asked: HotOperation,
        error: Exception,
    ) -> None:
        super().__init__(lane, connection, exchange, asked)
        self._error: Exception | None = error
        """None once it is answered."""

    def expect_rest(self) -> None:
        self.finish()

    def finish(self) -> None:
        error, self._error = self._error, None
        if error is None:
            return
        problem = self._problem(error)
        if len(problem.body) >= self._lane.service.settings.min_coded_bytes:
            self._start(self._send_coded(problem))
        else:
            self._send(problem.status, lines_of(problem.headers), problem.body)

    def leave(self) -> None:
        """Do nothing: it holds nothing."""


def lines_of(headers: Headers) -> bytes:
    """Return headers as lines, each with its end."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def _varying_by_origin(lines: bytes) -> bytes:
    """Return the lines with the `Vary` that `Cors` adds for a client without an `Origin`.

    Otherwise a cache would give a page an answer without CORS headers, and the browser would hide
    it.
    """
    before, name, rest = lines.partition(b"\r\nvary: ")
    if not name:
        return lines + b"vary: Origin\r\n"
    value, end, rest = rest.partition(b"\r\n")
    return b"".join((before, name, value, b", Origin", end, rest))
