"""Hot requests of usual form: from the parser's callbacks to one write of the whole answer.

No task, no scope, no ASGI messages. A request is appended at the end of the turn of the event loop
in which its last byte arrived, and answered when its commit is reported. A request with unusual
headers is FastAPI's. Both call the same functions of `app.operations`, and
`tests/http/test_lanes.py` compares the bytes of the answers.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.codecs.calls import AppendCall, IngestCall
from app.errors import RequestTimedOut
from app.http.answers import Body
from app.limits.admission import Pace
from app.operations.append.append import Append, Way
from app.operations.append.batching import Batcher
from app.operations.exchange import Exchange
from app.operations.ingest.ingest import AlreadyAppended, IngestAppend
from app.operations.service import Service
from app.store.port import Partition
from app.wire.hot_reads import HotReads
from app.wire.hot_request import INGEST, HotOperation, HotRefusal, HotRequest, Lane
from app.wire.known_heads import KnownHead, KnownHeads
from engine.errors import Overloaded, WouldBlock

_ODD: Final = frozenset(
    {
        b"content-digest",
        b"content-encoding",
        b"expect",
        b"idempotency-key",
        b"origin",
        b"sec-fetch-site",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers that need more than a plain append: FastAPI handles them."""


class HotLane(Lane):
    """Takes appends and reads from all connections. Belongs to the event loop."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.batcher = Batcher(service)
        self._reads = HotReads(self)
        self.known_heads = KnownHeads(service.settings.max_request_bytes)

    def enter(
        self, connection: HttpToolsProtocol, asked: HotOperation, head: bytes
    ) -> HotRequest | None:
        """Return the admitted request whose head is complete; None if its form is unusual.

        The connection has no other open request. If `head` is exactly the bytes given to the
        parser, it is known the next time.
        """
        if not isinstance(asked.call, AppendCall | IngestCall):
            return self._reads.enter(connection, asked)
        known = self._understand(connection, asked)
        if known is None:
            return None
        request = self.admit(connection, known)
        if isinstance(request, HotAppend):  # nothing is kept of a request that was refused
            self.known_heads.add(head, known)
        return request

    def admit(
        self, connection: HttpToolsProtocol, known: KnownHead
    ) -> HotAppend | HotRefusal | None:
        """Return the admitted or refused request with this head; None if it is not hot."""
        asked, kind = known.asked, HotAppend
        if asked.operation == INGEST:
            if not self.service.senders.can_verify_now(asked.topic, known.body_bytes):
                return None
            kind = HotIngest
        admitted = self.let_in(connection, asked, known.fields)
        if admitted is None or isinstance(admitted, HotRefusal):
            return admitted
        return kind(self, connection, known, *admitted)

    def _understand(self, connection: HttpToolsProtocol, asked: HotOperation) -> KnownHead | None:
        """Return the meaning of the head that the parser has just completed."""
        headers, parser = connection.headers, connection.parser
        if parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return None
        fields = dict(headers)
        if len(fields) != len(headers) or not self.is_named(connection, fields):
            return None
        length = fields.get(b"content-length", b"")
        if not _ODD.isdisjoint(fields) or not length.isdigit():
            return None
        if int(length) > self.service.settings.max_request_bytes:
            return None
        return KnownHead.of(connection.url, headers, fields, asked)


class HotAppend(HotRequest):
    """One append from its complete head to its answer."""

    __slots__ = (
        "_append",
        "_body",
        "_has_body",
        "_pace",
        "_timer",
    )

    _append: Append
    _exchange: Exchange
    _lane: HotLane

    def __init__(
        self,
        lane: HotLane,
        connection: HttpToolsProtocol,
        known: KnownHead,
        partition: Partition,
        exchange: Exchange,
    ) -> None:
        """Answer errors in the headers before the body arrives."""
        super().__init__(lane, connection, exchange, known.asked)
        self._body: Body = b""
        self._pace: Pace | None = None
        """None until the first bytes have arrived and more are expected."""
        self._has_body = False
        self._timer: asyncio.TimerHandle | None = None
        try:
            self._append = known.append(lane.service, partition)
        except Exception as error:  # noqa: BLE001  # whatever it is, it has a problem document
            self._refuse(error)

    def take(self, piece: bytes) -> None:
        """Count a piece of the body before it is held, unless the request was refused."""
        if self._has_body:
            return
        exchange, size_bytes = self._exchange, len(piece)
        try:
            exchange.ticket.hold_body(size_bytes)
        except Overloaded as error:
            self._refuse(error)
            return
        if exchange.caller.meter is not None:
            exchange.caller.received(size_bytes)
        if self._pace is not None:
            self._pace.came(size_bytes, self._connection.loop.time())
        if not self._body:
            self._body = piece
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += piece

    def expect_rest(self) -> None:
        if not self._has_body and self._pace is None:
            loop = self._connection.loop
            self._pace = Pace(self._lane.service.settings, loop.time())
            self._timer = loop.call_at(self._pace.deadline, self._look, self._pace)

    def _look(self, pace: Pace) -> None:
        """Refuse a body that stalls; check again later while it moves."""
        loop = self._connection.loop
        if loop.time() < pace.deadline:
            self._timer = loop.call_at(pace.deadline, self._look, pace)
        else:
            self._refuse(RequestTimedOut(pace.complaint))

    def finish(self) -> None:
        """Append the complete body, unless the request was refused."""
        if self._has_body:
            return
        self._end_body()
        append = self._append
        try:
            if self._timer is not None:  # the body took several reads
                self._exchange.caller.ensure_valid(self._lane.service.clock)
            way = append.way_of(self._body)
            if way is Way.SHARED:
                append.take(self._body)
                self._lane.batcher.add(append, len(self._body), self._appended)
                return
            if way is Way.ON_A_WORKER:
                self._start(self._run_on_worker())
                return
            append.run_now(self._body)
        except Exception as error:  # noqa: BLE001  # as above
            self._appended(error)
        else:
            self._appended(None)

    def leave(self) -> None:
        self.disconnected = True
        if not self._has_body:
            self._end_body()
            self._close(0, 0)

    def _refuse(self, error: Exception) -> None:
        """Answer with the error; discard the rest of the body."""
        self._end_body()
        self._start(self._explain(error))

    def _close(self, status: int, sent_bytes: int) -> None:
        super()._close(status, sent_bytes)
        # An idle connection keeps its last request until the next one: release the body now.
        self._body = b""
        self._append = None  # type: ignore[assignment]  # answered: not used any more

    def _end_body(self) -> None:
        self._has_body = True
        if self._timer is not None:
            self._timer.cancel()

    async def _run_on_worker(self) -> None:
        append, body, exchange = self._append, self._body, self._exchange
        run = exchange.decoding(exchange.write, self._ensure_wanted)
        try:
            await append.run(body, run, exchange.budget)
        except Exception as error:  # noqa: BLE001  # as above
            await self._explain(append.explained(error))
        else:
            self._appended(None)

    def _appended(self, error: Exception | None) -> None:
        """Answer, with `acks=all` once the append is on disk."""
        append = self._append
        if error is not None:
            would_wait = isinstance(error, WouldBlock)
            explained = append.explained(error)
            self._start(self._run_on_worker() if would_wait else self._explain(explained))
            return
        waits = append.call.acks == "all" and append.partition.when_committed(
            append.end_offset, self._settle
        )
        if not waits:
            self._settle(None)

    def _settle(self, error: Exception | None) -> None:
        if error is not None:
            self._start(self._explain(self._append.explained(error)))
            return
        status, head, body = self._append.receipt()
        self._send(status, head, body)


class HotIngest(HotAppend):
    """One ingest request: its sender may be known only when its body has arrived."""

    __slots__ = ()

    def __init__(
        self,
        lane: HotLane,
        connection: HttpToolsProtocol,
        known: KnownHead,
        partition: Partition,
        exchange: Exchange,
    ) -> None:
        super().__init__(lane, connection, known, partition, exchange)
        if not self._has_body:  # its head was not refused
            cast("IngestAppend", self._append).caller = exchange.caller

    def finish(self) -> None:
        if not self._has_body:
            exchange = self._exchange
            try:
                self._lane.service.senders.verify(exchange.caller, exchange.head, self._body)
            except Exception as error:  # noqa: BLE001  # as above
                self._refuse(error)
        super().finish()

    def _appended(self, error: Exception | None) -> None:
        super()._appended(None if isinstance(error, AlreadyAppended) else error)

    def _close(self, status: int, sent_bytes: int) -> None:
        append: IngestAppend | None = getattr(self, "_append", None)
        if append is not None:  # its head was not refused
            append.release()
        super()._close(status, sent_bytes)
