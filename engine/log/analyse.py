"""Validates incoming batches before any lock: framing, limits, checksums, content, times.

The result is ready to be stamped with offsets: under the lock nothing is decompressed, and nothing
fails because of the bytes. All records of a client's batch are checked, because a batch with a
correct checksum and malformed content must not reach a reader. A batch from our own builder
(`checked`) is only checked where its topic could refuse it. Mirrors Kafka's `LogValidator` and
`UnifiedLog.analyzeAndValidateRecords`, but accepts several batches per append.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Final, NamedTuple

from engine.config import LogConfig
from engine.errors import (
    BatchSetTooLarge,
    CorruptBatch,
    InvalidRecord,
    OffsetsOutOfOrder,
    TooLarge,
    UnsupportedMagic,
)
from engine.records.batch import OFFSET_LENGTH_EPOCH, BatchView, stamp_max_timestamp
from engine.records.budget import DecodeBudget
from engine.records.builder import recompress_batch
from engine.records.check import TimestampBounds, check_records
from engine.records.control import EndMarker, parse_end_marker
from engine.records.header import (
    MAGIC_2,
    MAGIC_POSITION,
    BatchHeader,
    Codec,
    TimestampType,
    frame_size,
    parse_header,
)
from engine.types import NO_TIMESTAMP, AppendOrigin, Buffer

_NO_MARKERS: Final[Mapping[int, EndMarker]] = MappingProxyType({})


class Incoming(NamedTuple):
    """Valid batches: one writable buffer, and the header and position of each batch."""

    buffer: bytearray | memoryview
    headers: Sequence[BatchHeader]
    positions: Sequence[int]
    max_timestamp: int
    batch_of_max_timestamp: int
    """The index of the first batch that has `max_timestamp`."""
    needs_judgement: bool
    """Whether any batch has a producer id, so that producer state must be checked."""
    markers: Mapping[int, EndMarker] = _NO_MARKERS

    @property
    def bears_append_time(self) -> bool:
        """Whether its records have log-append time, of this log or of another one."""
        return self.headers[0].timestamp_type is TimestampType.LOG_APPEND_TIME

    def stamp(self, headers: Sequence[BatchHeader]) -> None:
        """Write the offsets and leader epochs of these headers into the buffer."""
        for header, at in zip(headers, self.positions, strict=True):
            OFFSET_LENGTH_EPOCH.pack_into(self.buffer, at, header[0], header[1], header[2])


class AnalysisLimits(NamedTuple):
    """The limits of the analysis; record times are compared with `now_ms`."""

    now_ms: int
    max_decompressed_bytes: int
    budget: DecodeBudget | None = None
    """For all batches together; None means unlimited."""


def analyse(
    data: Buffer, config: LogConfig, origin: AppendOrigin, limits: AnalysisLimits, *, checked: bool
) -> Incoming:
    """Return the batches in `data`, ready for their offsets.

    A writable buffer is stamped in place. Other buffers are copied once, and so is every buffer of
    a topic with log-append time. Raises CorruptBatch, InvalidRecord, InvalidTimestamp, TooLarge,
    BatchSetTooLarge, DecodeBudgetSpent, UnsupportedMagic, UnsupportedCompression or
    OffsetsOutOfOrder; then nothing may be appended.
    """
    # A batch with the log's time would be refused, so a caller that retries must still have its
    # bytes as sent.
    is_stamped = config.uses_append_time and origin is not AppendOrigin.REPLICATION
    buffer = bytearray(data) if is_stamped else _writable(data)
    if origin is AppendOrigin.CLIENT:
        if checked:
            incoming = _of_own_builder(buffer, config, limits)
        else:
            incoming = _of_client(buffer, config, limits)
    else:
        incoming = _of_peer(buffer, config, origin, limits)
    size_bytes = len(incoming.buffer)
    if size_bytes > config.segment_bytes:
        raise BatchSetTooLarge(
            f"{size_bytes} bytes in one append; a segment holds {config.segment_bytes}",
            limit="segment.bytes",
            limit_bytes=config.segment_bytes,
            actual_bytes=size_bytes,
        )
    return incoming


def with_append_time(incoming: Incoming, now_ms: int) -> Incoming:
    """Return the batches with a later log-append time; recomputes their checksums."""
    for position in incoming.positions:
        stamp_max_timestamp(incoming.buffer, position, TimestampType.LOG_APPEND_TIME, now_ms)
    headers = [parse_header(incoming.buffer, position) for position in incoming.positions]
    return incoming._replace(headers=headers, max_timestamp=now_ms, batch_of_max_timestamp=0)


def _writable(data: Buffer) -> bytearray | memoryview:
    if isinstance(data, bytearray) or (isinstance(data, memoryview) and not data.readonly):
        return data
    return bytearray(data)


def _of_own_builder(
    buffer: bytearray | memoryview, config: LogConfig, limits: AnalysisLimits
) -> Incoming:
    """Trust framing, checksum and content; only check what the topic may refuse."""
    if not config.takes_any_record:
        return _of_client(buffer, config, limits)
    header = parse_header(buffer)
    size_bytes = header.size_bytes
    chosen = config.stored_codec
    if size_bytes == len(buffer) and chosen is None:  # as nearly all small appends
        _ensure_batch_size(size_bytes, config)
        incoming = Incoming(
            buffer, (header,), (0,), header.max_timestamp, 0, header.has_producer_id
        )
    else:
        positions, headers = zip(*_frames(buffer), strict=True)
        if chosen is not None and any(header.codec is not chosen[0] for header in headers):
            return _of_client(buffer, config, limits)
        for header in headers:
            _ensure_batch_size(header.size_bytes, config)
        incoming = _summed_up(buffer, headers, positions)
    if incoming.max_timestamp - limits.now_ms > config.message_timestamp_after_max_ms:
        return _of_client(buffer, config, limits)
    return incoming


def _of_client(
    buffer: bytearray | memoryview, config: LogConfig, limits: AnalysisLimits
) -> Incoming:
    bounds = TimestampBounds.around(
        limits.now_ms,
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
    )
    chosen = config.stored_codec
    accepted: list[bytearray | memoryview] = []
    rewritten = False
    frames = _frames(buffer)
    for position, header in frames:
        _ensure_batch_size(header.size_bytes, config)
        view = BatchView(buffer, position)
        view.ensure_intact()
        _ensure_client_header(header, position)
        with _decoding(view, limits):
            checked = check_records(
                view,
                limit_bytes=limits.max_decompressed_bytes,
                budget=limits.budget,
                requires_keys=config.is_compacted,
                timestamp_bounds=None if config.uses_append_time else bounds,
            )
        if config.uses_append_time:
            stamp_max_timestamp(buffer, position, TimestampType.LOG_APPEND_TIME, limits.now_ms)
        else:
            stamp_max_timestamp(buffer, position, TimestampType.CREATE_TIME, checked.max_timestamp)
        batch: bytearray | memoryview = memoryview(buffer)[position : position + header.size_bytes]
        if chosen is not None and chosen[0] is not header.codec:
            codec, level = chosen
            with _decoding(view, limits):
                batch = recompress_batch(
                    BatchView(batch),
                    codec,
                    level=level,
                    limit_bytes=limits.max_decompressed_bytes,
                )
            _ensure_batch_size(len(batch), config)
            rewritten = True
        accepted.append(batch)
    if rewritten:
        return _described(bytearray(b"".join(accepted)), limits)
    positions = [position for position, _ in frames]
    return _summed_up(buffer, [parse_header(buffer, at) for at in positions], positions)


def _decoding(batch: BatchView, limits: AnalysisLimits) -> AbstractContextManager[None]:
    """Reserve the memory to decode a compressed batch, if memory is bounded."""
    if limits.budget is None or batch.header.codec is Codec.NONE:
        return nullcontext()
    return limits.budget.decoding(batch.content_bound(limits.max_decompressed_bytes))


def _of_peer(
    buffer: bytearray | memoryview, config: LogConfig, origin: AppendOrigin, limits: AnalysisLimits
) -> Incoming:
    """Check batches of a coordinator, or batches that come from another log.

    A follower's bytes may end inside a batch, which is cut off, and may hold messages of magic 0
    and 1. Without a whole batch they are InvalidRecord, where Kafka silently appends nothing.
    """
    end = 0
    last_offset = -1
    is_follower = origin is AppendOrigin.REPLICATION
    for position, header in _frames(buffer, drops_partial=is_follower, takes_old=is_follower):
        BatchView(buffer, position).ensure_intact()
        if is_follower and header.last_offset <= last_offset:
            raise OffsetsOutOfOrder(
                f"offset {header.last_offset} follows {last_offset}",
                offset=header.last_offset,
                last_offset=last_offset,
            )
        last_offset = header.last_offset
        end = position + header.size_bytes
        if not is_follower:
            _ensure_batch_size(header.size_bytes, config)
            if config.uses_append_time:
                stamp_max_timestamp(buffer, position, TimestampType.LOG_APPEND_TIME, limits.now_ms)
    return _described(memoryview(buffer)[:end] if end < len(buffer) else buffer, limits)


def _frames(
    buffer: bytearray | memoryview, *, drops_partial: bool = False, takes_old: bool = False
) -> list[tuple[int, BatchHeader]]:
    """Return the position and header of every batch; the bytes must be whole batches."""
    frames: list[tuple[int, BatchHeader]] = []
    position = 0
    if not takes_old and len(buffer) > MAGIC_POSITION and buffer[MAGIC_POSITION] != MAGIC_2:
        magic = buffer[MAGIC_POSITION]  # first: another format is not damage
        raise UnsupportedMagic(f"the first batch has magic {magic}, not {MAGIC_2}", magic=magic)
    while position < len(buffer):
        size = frame_size(buffer, position)
        if size is None or size > len(buffer) - position:
            if drops_partial:
                break
            raise CorruptBatch(
                f"the batch at byte {position} is incomplete: {len(buffer) - position} bytes "
                + ("arrived" if size is None else f"of {size} arrived"),
                position=position,
            )
        magic = buffer[position + MAGIC_POSITION]
        if magic != MAGIC_2 and not takes_old:
            raise UnsupportedMagic(
                f"batches of magic {magic} are not accepted, only {MAGIC_2}", magic=magic
            )
        frames.append((position, parse_header(buffer, position)))
        position += size
    if not frames:
        raise InvalidRecord("the append has no batch")
    return frames


def _ensure_batch_size(size_bytes: int, config: LogConfig) -> None:
    if size_bytes > config.max_message_bytes:
        raise TooLarge(
            f"a batch of {size_bytes} bytes exceeds max.message.bytes, {config.max_message_bytes}",
            limit="max.message.bytes",
            limit_bytes=config.max_message_bytes,
            actual_bytes=size_bytes,
        )


def _ensure_client_header(header: BatchHeader, position: int) -> None:
    """Refuse fields that only a leader or coordinator may set; Kafka's rules for origin CLIENT."""
    if header.base_offset != 0:
        wrong = f"its base offset is {header.base_offset}; send 0, the log assigns offsets"
    elif header.is_control:
        wrong = "it is a control batch"
    elif header.has_producer_id and header.base_sequence < 0:
        wrong = f"it has a producer id and base sequence {header.base_sequence}"
    elif header.is_transactional and not header.has_producer_id:
        wrong = "it is transactional and has no producer id"
    else:
        return
    raise InvalidRecord(f"the batch at byte {position} is refused: {wrong}", position=position)


def _described(buffer: bytearray | memoryview, limits: AnalysisLimits) -> Incoming:
    """Read the stamped headers; complete those of magic 0 and 1 from their content."""
    frames = _frames(buffer, drops_partial=True, takes_old=True)
    headers = tuple(
        header
        if header.magic == MAGIC_2
        else BatchView(buffer, position).complete_header(limit_bytes=limits.max_decompressed_bytes)
        for position, header in frames
    )
    positions = tuple(position for position, _ in frames)
    markers: dict[int, EndMarker] = {}
    for index, header in enumerate(headers):
        if header.is_control:
            marker = parse_end_marker(BatchView(buffer, positions[index]))
            if marker is not None:
                markers[index] = marker
    return _summed_up(buffer, headers, positions)._replace(markers=markers)


def _summed_up(
    buffer: bytearray | memoryview, headers: Sequence[BatchHeader], positions: Sequence[int]
) -> Incoming:
    """Return batches, none of them a control batch, with their maximum timestamp and flags."""
    max_timestamp, batch_of_max, needs_judgement = NO_TIMESTAMP, 0, False
    for index, header in enumerate(headers):
        if header.max_timestamp > max_timestamp:
            max_timestamp, batch_of_max = header.max_timestamp, index
        needs_judgement = needs_judgement or header.has_producer_id
    return Incoming(buffer, headers, positions, max_timestamp, batch_of_max, needs_judgement)
