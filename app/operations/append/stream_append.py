"""Append a body of any length: NDJSON that is committed in parts while it arrives.

A worker appends one part while the next one is received. A bounded number of parts waits for the
disk, so a slow disk slows the client down and fills no memory. Each part is atomic, the whole is
not: the answer, and the problem document of a body that broke off, say up to which line everything
is committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import aclosing, suppress
from functools import partial
from typing import Final, NamedTuple, NoReturn

from app.codecs.calls import AppendCall
from app.codecs.json_parts import count_of_lines
from app.codecs.receipts import header_list, marks_of, receipt_head, stream_receipt_body
from app.codecs.records_in import read_records
from app.errors import AppendBrokeOff, MalformedRequest
from app.http.answers import NDJSON, Answer
from app.operations.append.append import STATUS, build
from app.operations.append.body_lines import BodyParts
from app.operations.exchange import Exchange
from app.operations.read.wait import ClientGone
from app.operations.request_content import media_type_of
from app.store.port import Partition
from engine.errors import InvalidRecord, TooLarge
from engine.log.results import Appended
from engine.records.builder import NewRecord
from engine.records.header import HEADER_BYTES

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
