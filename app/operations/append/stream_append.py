"""Append a body of any length: NDJSON that is committed in parts while it arrives.

A worker appends one part while the next one is received. A bounded number of parts waits for the
disk, so a slow disk slows the client down and fills no memory. Each part is atomic, the whole is
not: the answer, and the problem document of a body that broke off, say up to which line everything
is committed.

The body is cut into parts of whole lines, in bounded memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from functools import partial
from typing import Final, NamedTuple, NoReturn

from app.codecs.body_stream import IDENTITY, Lines, decoder_of
from app.codecs.calls import AppendCall
from app.codecs.json_parts import count_of_lines
from app.codecs.receipts import header_list, marks_of, receipt_head, stream_receipt_body
from app.codecs.records_in import read_records
from app.errors import AppendBrokeOff, Draining, MalformedRequest, RequestTimedOut
from app.http.answers import NDJSON, Answer, Message
from app.operations.append.append import STATUS, build
from app.operations.exchange import Exchange
from app.operations.request_content import media_type_of
from app.operations.wait import ClientGone
from app.store.port import Partition
from engine.errors import InvalidRecord, TooLarge
from engine.log.results import Appended
from engine.records.builder import NewRecord
from engine.records.header import HEADER_BYTES
from engine.types import Buffer


class BodyParts:
    """The body as parts of whole lines, soon after they arrive.

    When `has_failed` is set, the rest is not awaited: an earlier part failed.
    """

    def __init__(
        self, exchange: Exchange, largest_part_bytes: int, has_failed: asyncio.Event
    ) -> None:
        self.credentials_ended = asyncio.Event()
        """Set when the caller's credentials end: the rest is not awaited."""
        settings = exchange.service.settings
        part_bytes = max(1, min(settings.max_stream_part_bytes, largest_part_bytes))
        self._exchange = exchange
        encoding = exchange.head.get(b"content-encoding", IDENTITY)
        self._is_plain = encoding == IDENTITY
        self._decoder = decoder_of(encoding)
        self._lines = Lines(part_bytes, settings.max_request_bytes)
        self._linger_s = settings.stream_linger_ms / 1000
        idle_ms = settings.stream_idle_timeout_ms
        self._idle_s = idle_ms / 1000
        self._least_bytes = max(1, settings.min_stream_bytes_per_second * idle_ms // 1000)
        """Bytes that have to arrive within the idle time."""
        self._due_s: float | None = None
        """When complete lines have waited long enough for more."""
        self._writing_bytes = 0
        """Size of the last part, held until it is in the log."""
        self._has_failed = has_failed

    async def arriving(self) -> AsyncGenerator[bytes]:
        """Yield parts until the body has ended; each ends with a line.

        No part is empty, except one that only shows that an earlier part has failed. Raises
        ClientGone, RequestTimedOut, Unauthenticated, Draining, Overloaded, and as `Decoder` and
        `Lines`.
        """
        lines, decoder = self._lines, self._decoder
        loop = asyncio.get_running_loop()
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                decoder.feed(chunk)
                while piece := await self._decoded():
                    lines.add(piece)
                    self._settle()
                    while (part := lines.take_full()) is not None:
                        yield self._handed_on(part)
                if self._has_failed.is_set():
                    yield b""
                elif not lines.has_whole:
                    self._due_s = None
                elif self._due_s is None:
                    self._due_s = loop.time() + self._linger_s
                elif loop.time() >= self._due_s:
                    self._due_s = None
                    yield self._handed_on(lines.take_whole())
                    self._settle()
        decoder.close()
        if rest := lines.take_rest():
            yield rest

    def _handed_on(self, part: bytes) -> bytes:
        self._writing_bytes = len(part)
        return part

    def _settle(self) -> None:
        """Count held bytes: a silent stream holds only its last lines."""
        held_bytes = self._lines.held_bytes + self._decoder.held_bytes
        self._exchange.ticket.settle_body(held_bytes + self._writing_bytes)

    async def _decoded(self) -> Buffer:
        if self._is_plain:
            return self._decoder.read()
        return await self._exchange.write(self._decoder.read)

    async def _chunks(self) -> AsyncGenerator[bytes]:
        """Yield received pieces, and nothing when lines are due or an append has failed."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.ensure_future(self._exchange.service.stopping.wait())
        failing = asyncio.ensure_future(self._has_failed.wait())
        ending = asyncio.ensure_future(self.credentials_ended.wait())
        coming: asyncio.Future[Message] | None = None
        given_up_s, fresh_bytes = loop.time() + self._idle_s, 0
        try:
            while True:
                if coming is None:
                    pause_s = self._exchange.caller.debt_s("bytes_in")
                    coming = asyncio.ensure_future(self._receive_after(pause_s))
                    given_up_s += pause_s
                next_s = given_up_s if self._due_s is None else min(given_up_s, self._due_s)
                await asyncio.wait(
                    (coming, stopping, failing, ending),
                    timeout=max(0, next_s - loop.time()),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                now = loop.time()
                if coming.done():
                    message, coming = coming.result(), None
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    body = message.get("body", b"")
                    fresh_bytes += len(body)
                    if fresh_bytes >= self._least_bytes:
                        given_up_s, fresh_bytes = now + self._idle_s, 0
                    yield body
                    if not message.get("more_body"):
                        return
                    self._ensure_going_on(is_late=now >= given_up_s)
                elif failing.done():
                    yield b""
                else:
                    self._ensure_going_on(is_late=now >= given_up_s)
                    yield b""
                given_up_s += loop.time() - now  # the client waited for its lines in that time
        finally:
            stopping.cancel()
            failing.cancel()
            ending.cancel()
            if coming is not None:
                coming.cancel()

    def _ensure_going_on(self, *, is_late: bool) -> None:
        """Raise if the rest of the body is not to be awaited."""
        if self.credentials_ended.is_set():
            raise self._exchange.caller.ended()
        if self._exchange.service.stopping.is_set():
            raise Draining("the service is stopping")
        if is_late:
            settings = self._exchange.service.settings
            raise RequestTimedOut(
                f"less than min_stream_bytes_per_second ({settings.min_stream_bytes_per_second}) "
                f"of the body arrived for {settings.stream_idle_timeout_ms} ms"
            )

    async def _receive_after(self, pause_s: float) -> Message:
        """Receive the next piece once the quota allows it: until then the client waits."""
        if pause_s:
            await asyncio.sleep(pause_s)
        return await self._exchange.receive()


REFUSED: Final = (
    b"producer-id",
    b"producer-epoch",
    b"producer-sequence",
    b"if-match",
    b"expected-offset",
    b"content-digest",
    b"idempotency-key",
)
"""Headers for a single atomic append, which a stream is not."""

_WRONG: Final = (InvalidRecord, MalformedRequest, TooLarge)


async def append_stream(exchange: Exchange, partition: Partition, call: AppendCall) -> Answer:
    """Append the records of an NDJSON body in parts, however long it is.

    Raises AppendBrokeOff, which says how far it got, once the body has begun.
    """
    media_type_of(exchange.head, (NDJSON,))
    for name in REFUSED:
        if name in exchange.head:
            raise MalformedRequest(
                f"{name.decode()} applies to one append; a stream is many", header=name.decode()
            )
    largest_batch_bytes = partition.config.max_message_bytes - HEADER_BYTES
    writer = _Writer(exchange, partition, call)
    parts = BodyParts(exchange, largest_batch_bytes, writer.has_failed)
    try:
        lasting = exchange.service.security.lasting
        with lasting.during(exchange.caller, parts.credentials_ended.set):
            async with aclosing(parts.arriving()) as arriving:
                async for part in arriving:
                    await writer.put(part)
        await writer.finish()
    except Exception as error:
        await writer.abandon()
        if isinstance(error, ClientGone):
            raise
        raise writer.with_progress(error) from error
    return writer.answer()


class _Progress(NamedTuple):
    """Progress of a body: everything before the end of these lines is in the log."""

    lines: int
    records: int
    base_offset: int
    """The first record's offset; other clients' records may lie between it and the last."""
    last: Appended
    """The latest part that has records."""


class _Writer:
    """Appends part after part, one at a time, and follows them to the disk."""

    def __init__(self, exchange: Exchange, partition: Partition, call: AppendCall) -> None:
        self.has_failed = asyncio.Event()
        """Set when a part could not be appended: `put` raises the error."""
        self._exchange = exchange
        self._service = exchange.service
        self._partition = partition
        self._call = call
        self._writing: asyncio.Future[tuple[int, Appended | None]] | None = None
        self._lines = 0
        """Lines of the appended parts."""
        self._latest: _Progress | None = None
        self._unconfirmed: deque[_Progress] = deque()
        self._confirmed: _Progress | None = None
        """Progress of the parts that are as safe as `acks` requires."""
        self._wrong_line: int | None = None

    async def put(self, part: bytes) -> None:
        """Begin to append a part, after the one before it.

        Raises Unauthenticated if the credentials have ended since the last part.
        """
        self._exchange.caller.ensure_valid(self._service.clock)
        await self._end_writing()
        await self._confirm(self._service.settings.max_stream_parts_in_flight)
        self._writing = asyncio.ensure_future(self._write(part))
        self._writing.add_done_callback(self._note_failure)

    def _note_failure(self, written: asyncio.Future[tuple[int, Appended | None]]) -> None:
        if not written.cancelled() and written.exception() is not None:
            self.has_failed.set()

    async def finish(self) -> None:
        """Return when everything is as safe as `acks` requires; raises if there is no record."""
        await self._end_writing()
        await self._confirm(0)
        if self._confirmed is None:
            raise InvalidRecord("the body contains no record")

    async def abandon(self) -> None:
        """Return when the appended parts are safe, or have failed."""
        with suppress(Exception):  # the cause is reported, not its consequences
            await self._end_writing()
        with suppress(Exception):
            await self._confirm(0)

    def answer(self) -> Answer:
        """Return the receipt of the whole body."""
        progress = self._confirmed
        assert progress is not None, "an empty body is refused"
        partition, acks = self._partition, self._call.acks
        appended = progress.last._replace(
            base_offset=progress.base_offset, records_count=progress.records
        )
        marks = marks_of(partition, appended)
        headers = header_list(receipt_head(partition, appended, marks, b"records"))
        body = stream_receipt_body(partition, appended, marks, acks, progress.lines)
        return Answer(STATUS[acks], headers, body)

    def with_progress(self, error: Exception) -> Exception:
        """Return the error with the body's progress: up to which line, and to which offset."""
        progress = self._confirmed
        return AppendBrokeOff(
            error,
            has_written=self._latest is not None,
            committed_lines=0 if progress is None else progress.lines,
            committed_records=0 if progress is None else progress.records,
            base_offset=None if progress is None else progress.base_offset,
            last_offset=None if progress is None else progress.last.last_offset,
            line=self._wrong_line,
        )

    async def _end_writing(self) -> None:
        if self._writing is None:
            return
        writing, self._writing = self._writing, None
        lines, appended = await writing
        self._lines += lines
        before = self._latest
        if appended is None:
            if before is not None:
                self._latest = before._replace(lines=self._lines)
        elif before is None:
            records, base_offset = appended.records_count, appended.base_offset
            self._latest = _Progress(self._lines, records, base_offset, appended)
        else:
            records = before.records + appended.records_count
            self._latest = before._replace(lines=self._lines, records=records, last=appended)
        if self._latest is not None:
            self._unconfirmed.append(self._latest)

    async def _confirm(self, may_wait: int) -> None:
        """Wait until at most this many parts wait for the disk; none waits without acks=all."""
        while len(self._unconfirmed) > may_wait:
            progress = self._unconfirmed.popleft()
            if self._call.acks == "all":
                try:
                    await self._partition.committed(progress.last.last_offset + 1)
                except Exception:
                    self._unconfirmed.clear()  # the disk confirms nothing more
                    raise
            self._confirmed = progress

    async def _write(self, part: bytes) -> tuple[int, Appended | None]:
        """Append a part; return its lines, and the result unless it is blank."""
        lines = count_of_lines(part)
        if part.isspace():
            return lines, None
        appended = await self._partition.append(
            partial(self._batch, part),
            acks=self._call.acks,
            checked=True,
            run=self._exchange.write,
        )
        return lines, appended

    def _batch(self, part: bytes) -> bytearray:
        """Return a part as one batch, on a worker; raises what is wrong with its lines."""
        try:
            records = self._records(part)
        except _WRONG as error:
            self._locate(part, error)
        return build(self._partition, self._call, records)

    def _records(self, lines: bytes) -> Iterable[NewRecord]:
        service = self._service
        return read_records(
            lines,
            is_ndjson=True,
            max_records=service.settings.max_records_per_request,
            now_ms=service.clock.now_ms(),
            config=self._partition.config,
        )

    def _locate(self, part: bytes, error: Exception) -> NoReturn:
        """Raise the first error in a part, with its line."""
        index = 0 if self._latest is None else self._latest.records
        for number, line in enumerate(part.split(b"\n"), self._lines + 1):
            if not line.strip():
                continue
            try:
                self._records(line)
            except InvalidRecord as alone:
                self._wrong_line = number
                entries = [{**entry, "index": index} for entry in alone.errors]
                raise type(alone)(str(alone), entries) from None
            except _WRONG:
                self._wrong_line = number
                raise
            index += 1
        raise error
