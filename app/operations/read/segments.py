"""Downloads of segment files: in bounded memory, never with bytes of two files in one answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from app.codecs.receipts import file_etag, file_headers
from app.codecs.selection import Span, content_range, ensure_match, known_tag, span_of
from app.http.answers import REVALIDATED, Answer, Headers, StreamedAnswer
from app.operations.exchange import Exchange
from app.operations.wait import DisconnectWatcher
from app.store.local.partition import LocalPartition
from engine.log.read.segment_files import FileKind, SegmentFile
from engine.types import Buffer


async def download_segment(
    exchange: Exchange,
    partition: LocalPartition,
    base_offset: int,
    kind: FileKind,
    *,
    cut_off: Callable[[], None],
) -> StreamedAnswer | Answer:
    """Return the committed part of a file, or the part that Range selects.

    Its first bytes are read before the answer begins: damage in them is an error. Later damage
    breaks the answer off. `cut_off` ends the connection; it is called when the credentials end.
    """
    head, service = exchange.head, exchange.service
    file = await partition.maintenance.open_file(base_offset, kind, exchange.ticket.holder)
    size_bytes = file.size_bytes
    etag = file_etag(partition, base_offset, kind, file)
    ensure_match(head, etag)
    headers: Headers = [(b"etag", etag), REVALIDATED[service.settings.cache_visibility]]
    if known_tag(head, (etag,)) or head.get(b"if-none-match", b"").strip() == b"*":
        return Answer(304, headers, b"")
    headers += file_headers(partition, base_offset, kind, file)
    span = span_of(head, etag, size_bytes)
    status = 200
    if span is None:
        span = Span(0, size_bytes)
    else:
        status = 206
        headers.append(content_range(span, size_bytes))
    chunk_bytes = service.settings.download_chunk_bytes
    exchange.ticket.hold_answer(
        min(size_bytes, chunk_bytes) if file.content is None else size_bytes
    )
    first = await _piece(exchange, partition, file, span) if span.start < span.end else b""
    pieces = _pieces(exchange, partition, file, span, first, cut_off=cut_off)
    return StreamedAnswer(status, headers, span.end - span.start, pieces)


async def _pieces(
    exchange: Exchange,
    partition: LocalPartition,
    file: SegmentFile,
    span: Span,
    first: Buffer,
    *,
    cut_off: Callable[[], None],
) -> AsyncGenerator[Buffer]:
    """Yield the bytes of `span`; `first` has been read.

    Ends early if the client disconnects; a client whose credentials end is cut off, even inside a
    piece.
    """
    caller, clock = exchange.caller, exchange.service.clock
    with exchange.service.security.lasting.during(caller, cut_off):
        yield first
        span = Span(span.start + len(first), span.end)
        with DisconnectWatcher(exchange.receive) as departure:
            while span.start < span.end and not departure.is_gone:
                if not caller.is_valid(clock.now_ms()):
                    cut_off()
                    return
                piece = await _piece(exchange, partition, file, span)
                yield piece
                span = Span(span.start + len(piece), span.end)


async def _piece(
    exchange: Exchange, partition: LocalPartition, file: SegmentFile, span: Span
) -> Buffer:
    """Return the first bytes of `span`: at least one, at most one read.

    Only a larger batch is returned whole, because it is verified whole.
    """
    service = exchange.service
    max_bytes = min(service.settings.download_chunk_bytes, span.end - span.start)
    holder = exchange.ticket.holder
    data = await partition.maintenance.read_file(file, span.start, max_bytes, holder)
    if file.content is None:
        exchange.ticket.settle_answer(len(data))
    return memoryview(data)[: span.end - span.start]
