"""Usual reads without ASGI; a long poll is answered by the commit that it waits for.

A thousand readers that wait for the same commit share one look at the log and one rendering: waking
each is a few checks and one write. Reads from the disk and large renderings run in a task, with the
same operations as all other requests.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.codecs.calls import AppendCall, IngestCall, ReadCall
from app.http.answers import RECORD_BATCH, SEND_BYTES, Answer
from app.limits.admission import Phase
from app.operations.content_coding import ACCEPT_ENCODING, coded
from app.operations.exchange import Exchange
from app.operations.read.fetch import ensure_current, moved_since, start_now
from app.operations.read.offsets import known_offsets
from app.operations.read.read import (
    batches_answer,
    find_now,
    find_on_disk,
    is_enough,
    records_answer,
    records_now,
)
from app.operations.read.render_memory import Found
from app.store.port import Partition
from app.wire.connections import JOINED_BYTES
from app.wire.hot_request import HotOperation, HotRefusal, HotRequest, Lane, lines_of

_ODD: Final = frozenset(
    {b"expect", b"if-none-match", b"origin", b"range", b"transfer-encoding", b"upgrade"}
)
"""Headers that need more than a plain read: FastAPI handles them."""

_NO_BODY: Final = frozenset({b"", b"0"})


class HotReads:
    """Takes reads from all connections. Belongs to the event loop."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def enter(
        self, connection: HttpToolsProtocol, asked: HotOperation
    ) -> HotRead | HotRefusal | None:
        """Return the admitted or refused request whose head is complete; None if it is not hot."""
        parser = connection.parser
        if parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return None
        head = dict(connection.headers)
        if len(head) != len(connection.headers) or not self._lane.is_named(connection, head):
            return None
        if not _ODD.isdisjoint(head) or head.get(b"content-length", b"") not in _NO_BODY:
            return None
        admitted = self._lane.let_in(connection, asked, head)
        if admitted is None or isinstance(admitted, HotRefusal):
            return admitted
        partition, exchange = admitted
        return HotRead(self._lane, connection, exchange, asked, partition)


class HotRead(HotRequest):
    """One read from its complete head to its answer, the wait for a commit included."""

    __slots__ = ("_call", "_found", "_media_type", "_partition", "_timer", "_wait_until")

    _exchange: Exchange

    def __init__(
        self,
        lane: Lane,
        connection: HttpToolsProtocol,
        exchange: Exchange,
        asked: HotOperation,
        partition: Partition,
    ) -> None:
        super().__init__(lane, connection, exchange, asked)
        self._partition = partition
        assert not isinstance(asked.call, AppendCall | IngestCall), "a read"
        self._call = asked.call
        self._media_type = b""
        self._wait_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._found: Found | None = None
        """The read result when the wait began; None while not waiting."""

    def finish(self) -> None:
        """Answer, begin to wait, or leave the rest to a task."""
        call = self._call
        if self._partition.is_local or (call is not None and call.start.offset is not None):
            self._begin()
        else:
            self._start(self._refresh())

    async def _refresh(self) -> None:
        """Ask for the log's offsets before they are used."""
        try:
            await self._partition.refresh()
        except Exception as error:  # noqa: BLE001  # as below
            await self._explain(error)
        else:
            self._begin()

    def _begin(self) -> None:
        call, partition = self._call, self._partition
        try:
            if call is None:
                status, headers, body = known_offsets(partition)
                self._send(status, lines_of(headers), body)
                return
            self._media_type = self._wanted(call)
            start = start_now(partition, call)
            assert start is not None, "reads by time are not hot"
            if call.max_wait_ms:
                wait_ms = min(call.max_wait_ms, self._lane.service.settings.max_wait_ms)
                self._wait_until = self._connection.loop.time() + wait_ms / 1000
            self._look(call, start)
        except Exception as error:  # noqa: BLE001  # whatever it is, it has a problem document
            self._start(self._explain(error))

    def _wanted(self, call: ReadCall) -> bytes:
        """Return the media type of the answer; raises NotAcceptable."""
        if self._operation == "readRecords":
            return self._exchange.wanted_records(call.media_type)
        self._exchange.ensure_takes_batches()
        return RECORD_BATCH

    def _look(self, call: ReadCall, start: int) -> None:
        found = find_now(self._exchange, self._partition, call, start)
        if found is None:
            self._start(self._find(call, start))
        else:
            self._go_on(call, found)

    def _go_on(self, call: ReadCall, found: Found) -> None:
        """Answer with the result, or wait until it is enough."""
        if is_enough(call, found.fetched) or self._is_over():
            self._answer(call, found)
        elif self.disconnected:
            self._close(0, 0)
        elif moved_since(self._partition, call, found.fetched):
            self._look(call, found.start)  # on another thread, after the read
        else:
            self._wait(found)

    def _is_over(self) -> bool:
        """Whether the wait is over: its time has passed, or the service stops."""
        is_late = self._connection.loop.time() >= self._wait_until
        return is_late or self._lane.service.admission.phase is not Phase.READY

    async def _find(self, call: ReadCall, start: int) -> None:
        """Read from the disk."""
        try:
            self._go_on(call, await find_on_disk(self._exchange, self._partition, call, start))
        except Exception as error:  # noqa: BLE001  # as above
            await self._explain(error)

    # -- waiting -----------------------------------------------------------------------------

    def _wait(self, found: Found) -> None:
        """Wait at the end of the log; `wake` is called when it moves."""
        ticket = self._exchange.ticket
        ticket.settle_answer(0)
        ticket.park()
        self._found = found
        self._timer = self._connection.loop.call_at(self._wait_until, self.wake)
        service = self._lane.service
        service.tail.park(self._partition.identity, self)
        service.security.lasting.add(self, self._exchange.caller, self.wake)

    def wake(self) -> None:
        """Read again; answer if there is enough, the time is over, or the service stops."""
        call, found, caller = self._call, self._found, self._exchange.caller
        assert call is not None, "only reads wait"
        assert found is not None, "only waiting reads are woken"
        self._end_wait()
        service = self._lane.service
        try:
            caller.ensure_held(service.clock)
            ensure_current(service, self._partition)
            self._look(call, found.start)
        except Exception as error:  # noqa: BLE001  # as above
            self._start(self._explain(error))

    def _end_wait(self) -> None:
        assert self._timer is not None, "a waiting read has a timer"
        self._timer.cancel()
        self._found = None
        service = self._lane.service
        service.tail.leave(self._partition.identity, self)
        service.security.lasting.remove(self)
        self._exchange.ticket.resume()

    def leave(self) -> None:
        """Stop waiting: the client has disconnected."""
        self.disconnected = True
        if self._found is not None:
            self._end_wait()
            self._close(0, 0)

    # -- answering ---------------------------------------------------------------------------

    def _answer(self, call: ReadCall, found: Found) -> None:
        """Write a small answer at once; large ones are rendered in a task."""
        answer = self._made(call, found)
        if answer is None or len(answer.body) > JOINED_BYTES or self._may_be_coded(answer):
            self._start(self._deliver(call, found, answer))
            return
        lines = found.lines.get(self._media_type)
        if lines is None:
            lines = found.lines[self._media_type] = lines_of(answer.headers)
        self._send(answer.status, lines, answer.body)

    def _made(self, call: ReadCall, found: Found) -> Answer | None:
        exchange, partition, media_type = self._exchange, self._partition, self._media_type
        if media_type != RECORD_BATCH:
            return records_now(exchange, partition, call, found, media_type)
        answer = found.answers.get(media_type)
        if answer is None:
            answer = batches_answer(exchange, partition, call, found.fetched)
            found.answers[media_type] = answer
        return answer

    def _may_be_coded(self, answer: Answer) -> bool:
        if self._media_type == RECORD_BATCH or ACCEPT_ENCODING not in self._exchange.head:
            return False
        return len(answer.body) >= self._lane.service.settings.min_coded_bytes

    async def _deliver(self, call: ReadCall, found: Found, answer: Answer | None) -> None:
        """Render the answer if necessary, and send it as fast as the client receives it."""
        exchange = self._exchange
        try:
            if answer is None:
                answer = await records_answer(
                    exchange,
                    self._partition,
                    call,
                    found,
                    self._media_type,
                    ensure_wanted=self._ensure_wanted,
                )
            answer = await coded(exchange.service, exchange.head, answer)
        except Exception as error:  # noqa: BLE001  # as above
            await self._explain(error)
            return
        status, headers, body = answer
        size_bytes = len(body)
        transport = self._connection.transport
        transport.write(b"".join(self._head(status, lines_of(headers), size_bytes)))
        view = memoryview(body)
        for start in range(0, size_bytes, SEND_BYTES):
            if transport.is_closing():
                break
            transport.write(view[start : start + SEND_BYTES])
            await self._connection.flow.drain()
        if not self.keep_alive:
            transport.close()
        self._end(status, size_bytes)
