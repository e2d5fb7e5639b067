"""Hot requests of usual form: from the parser's callbacks to one write of the whole answer.

No task, no scope, no ASGI messages. A request is appended at the end of the turn of the event loop
in which its last byte arrived, and answered when its commit is reported. Unusual headers and tails
need a task: `app.wire.hot_tasks`. Everything calls the same functions of `app.operations`, and
`tests/http/test_lanes.py` compares the bytes of the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.codecs.calls import AppendCall, IngestCall
from app.http.answers import App, Body, Scope
from app.http.problems import (
    CrossSiteRequest,
    MisdirectedRequest,
    RequestTimedOut,
    ServiceError,
)
from app.http.request_checks import TRACE
from app.limits.body_pace import Pace
from app.operations.append.append import Append, BatchesAppend, RecordsAppend
from app.operations.append.batching import Batcher
from app.operations.exchange import Exchange
from app.operations.ingest.delivery_ids import delivery_ids_of
from app.operations.ingest.ingest import AlreadyAppended, IngestAppend, ingest_append
from app.operations.service import Service
from app.store.port import Partition
from app.wire.hot_operations import INGEST, HotOperation
from app.wire.hot_reads import HotReads
from app.wire.hot_request import HotRefusal, HotRequest, Lane
from app.wire.hot_tasks import OPERATION
from engine.errors import EngineError, Overloaded
from engine.guard import WouldBlock

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
"""Headers that need more than a plain append: `HotTasks` or FastAPI handles them."""


MAX_CACHED_HEADS: Final = 1_024
"""Cached heads, of some hundred bytes each."""

MAX_CACHED_HEAD_BYTES: Final = 1_024
"""A longer head is not cached."""


class CachedHead(NamedTuple):
    """A parsed head of an append; the same bytes always mean the same."""

    url: bytes
    headers: list[tuple[bytes, bytes]]
    fields: Mapping[bytes, bytes]
    body_bytes: int
    asked: HotOperation
    append: Callable[[Service, Partition], Append]
    """Makes the append; raises for a refused head."""


class HotLane(Lane):
    """Takes appends and reads from all connections. Belongs to the event loop."""

    def __init__(self, service: Service, tasks: App) -> None:
        """`tasks` serves hot requests that need a task: see `HotTasks`."""
        super().__init__(service)
        self.batcher = Batcher(service)
        self._tasks = tasks
        self._reads = HotReads(self)
        self.cached_heads: dict[bytes, CachedHead] = {}
        """By exactly these bytes."""

    def enter(
        self, connection: HttpToolsProtocol, asked: HotOperation, head: bytes
    ) -> HotRequest | None:
        """Return the admitted request whose head is complete; None if its form is unusual.

        The connection has no other open request. `head` may be exactly the bytes given to the
        parser; then the result is cached for the next time.
        """
        if not isinstance(asked.call, AppendCall | IngestCall):
            return self._reads.enter(connection, asked)
        cached = self._understand(connection, asked, asked.call)
        if cached is None:
            return None
        request = self.admit(connection, cached)
        if request is not None and self._may_return(cached) and _is_whole(head, cached):
            self._remember(head, cached)
        return request

    def _may_return(self, cached: CachedHead) -> bool:
        """Whether the same head may come again: signatures and delivery ids come once."""
        if cached.asked.operation != INGEST:
            return True
        profile = self.service.profiles.of(cached.asked.topic)
        return profile.signature is None and not delivery_ids_of(cached.fields, profile).found

    def task_of(self, connection: HttpToolsProtocol, asked: HotOperation) -> App | None:
        """Return what serves a hot request that `enter` did not take; None if FastAPI does.

        FastAPI's side refuses hosts and sites that are not allowed.
        """
        server, scheme = connection.server, connection.scheme or "http"
        try:
            self.service.partition(asked.topic, asked.partition)  # FastAPI explains a wrong name
            self.service.sites.ensure_admitted(
                asked.method, scheme, connection.headers, server[0] if server else ""
            )
        except (EngineError, CrossSiteRequest, MisdirectedRequest):
            return None
        cast("Scope", connection.scope)[OPERATION] = asked
        return self._tasks

    def admit(
        self, connection: HttpToolsProtocol, cached: CachedHead
    ) -> HotAppend | HotRefusal | None:
        """Return the admitted or refused request with this head; None if it is not hot."""
        asked, kind = cached.asked, HotAppend
        if asked.operation == INGEST:
            if not self.service.senders.can_verify_now(asked.topic, cached.body_bytes):
                return None
            kind = HotIngest
        admitted = self.let_in(connection, asked, cached.fields)
        if admitted is None or isinstance(admitted, HotRefusal):
            return admitted
        return kind(self, connection, cached, *admitted)

    def _understand(
        self, connection: HttpToolsProtocol, asked: HotOperation, call: AppendCall | IngestCall
    ) -> CachedHead | None:
        """Return the meaning of the head that the parser has just completed."""
        url, headers, parser = connection.url, connection.headers, connection.parser
        if parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return None
        fields = dict(headers)
        if len(fields) != len(headers) or not self.is_named(connection, fields):
            return None
        length = fields.get(b"content-length", b"")
        if not _ODD.isdisjoint(fields) or not length.isdigit():
            return None
        body_bytes = int(length)
        if body_bytes > self.service.settings.max_request_bytes:
            return None
        append = _maker_of(asked.operation, fields, call)
        return CachedHead(url, headers, fields, body_bytes, asked, append)

    def _remember(self, head: bytes, cached: CachedHead) -> None:
        if len(self.cached_heads) >= MAX_CACHED_HEADS:
            self.cached_heads.clear()
        self.cached_heads[head] = cached


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
        cached: CachedHead,
        partition: Partition,
        exchange: Exchange,
    ) -> None:
        """Answer errors in the headers before the body arrives."""
        super().__init__(lane, connection, exchange, cached.asked)
        self._body: Body = b""
        self._pace: Pace | None = None
        """None until the first bytes have arrived and more are expected."""
        self._has_body = False
        self._timer: asyncio.TimerHandle | None = None
        try:
            self._append = cached.append(lane.service, partition)
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
            if not append.is_light(self._body):
                self._start(self._run_on_worker())
                return
            if append.can_coalesce(self._body):
                append.take(self._body)
                self._lane.batcher.add(append, len(self._body), self._appended)
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
            await self._explain(error)
        else:
            self._appended(None)

    def _appended(self, error: Exception | None) -> None:
        """Answer, with `acks=all` once the append is on disk."""
        append = self._append
        if error is not None:
            would_wait = isinstance(error, WouldBlock)
            self._start(self._run_on_worker() if would_wait else self._explain(error))
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


def _maker_of(
    operation: str, fields: Mapping[bytes, bytes], call: AppendCall | IngestCall
) -> Callable[[Service, Partition], Append]:
    """Return what makes an append with this head."""
    if isinstance(call, IngestCall):  # its profile may change
        return partial(ingest_append, head=fields, call=call)
    kind = RecordsAppend if operation == "appendRecords" else BatchesAppend
    with suppress(ServiceError):
        return partial(kind, options=kind.options_of(fields, call))
    return partial(_refused, kind, fields, call)


def _refused(
    kind: type[Append],
    fields: Mapping[bytes, bytes],
    call: AppendCall,
    service: Service,
    partition: Partition,
) -> Append:
    """Raise the refusal of a head: each request has an error of its own."""
    return kind(service, partition, kind.options_of(fields, call))


def _is_whole(head: bytes, cached: CachedHead) -> bool:
    """Whether these bytes are exactly that head, and likely to be sent again.

    Counting lines excludes heads whose line ends only some parsers accept.
    """
    if len(head) > MAX_CACHED_HEAD_BYTES or TRACE in cached.fields or not head.startswith(b"POST "):
        return False
    lines = len(cached.headers) + 2
    return head.count(b"\r\n") == lines and head.count(b"\n") == lines
