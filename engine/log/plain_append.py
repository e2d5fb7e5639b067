"""The short path of one small batch, in a third of the steps of the general path of `Log.append`.

It appends what needs no decision: one uncompressed batch of our own builder, without a producer, to
an active segment that is open and has room. The result is that of the general path, which appends
everything else and explains what is refused.
"""

from __future__ import annotations

from engine.log.append.codec import stored_codec
from engine.log.core import LogCore
from engine.log.results import Appended, LogTag
from engine.records.batch import OFFSET_LENGTH_EPOCH
from engine.records.header import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader
from engine.segment.roll_params import RollParams
from engine.types import INT64_MAX, NO_PRODUCER_ID, OffsetMetadata


def append_plain(core: LogCore, batch: bytearray, now_ms: int) -> Appended | None:
    """Append a batch of our own builder; None, with nothing changed, if it is not plain.

    The log lock is held. Opens, creates and stats no file. Raises as `LogState.write`.
    """
    state, health = core.state, core.context.health
    size_bytes = len(batch)
    if core.is_closed or core.is_deleted or size_bytes < HEADER_BYTES:
        return None
    health.ensure_taking(now_ms)
    fields = HEADER.unpack_from(batch)
    _, length, _, _, crc, attributes, last_offset_delta, _, max_timestamp, producer_id, *_ = fields
    config, epoch, latest = state.local.config, state.leader_epoch, state.epochs.latest
    if (
        attributes
        or producer_id != NO_PRODUCER_ID
        or length + LOG_OVERHEAD_BYTES != size_bytes
        or size_bytes > config.max_message_bytes
        or config.is_compacted
        or config.uses_append_time
        or config.message_timestamp_before_max_ms != INT64_MAX
        or max_timestamp - now_ms > config.message_timestamp_after_max_ms
        or stored_codec(config) is not None
        or latest is None
        or latest.epoch != epoch
    ):
        return None
    marks, segment = state.watermarks, state.local.segments.active
    first_offset = marks.end.offset
    last_offset = first_offset + last_offset_delta
    if last_offset >= INT64_MAX:
        return None
    segment_ms, segment_bytes = config.max_segment_ms, config.segment_bytes
    if not segment.is_at_hand or segment.should_roll(
        RollParams(segment_ms, segment_bytes, max_timestamp, last_offset, size_bytes, now_ms)
    ):
        return None
    OFFSET_LENGTH_EPOCH.pack_into(batch, 0, first_offset, length, epoch)
    try:
        position = segment.append(batch, last_offset, max_timestamp, last_offset)
    except BaseException:
        OFFSET_LENGTH_EPOCH.pack_into(batch, 0, *fields[:3])  # a refused append is unchanged
        with health.appending:
            raise
    next_offset = last_offset + 1
    end = OffsetMetadata(next_offset, segment.base_offset, position + size_bytes)
    state.watermarks = marks = marks.with_end(end)
    state.tag = tag = LogTag(epoch, next_offset, crc)
    state.producers.map_end_offset = next_offset
    header = BatchHeader(first_offset, length, epoch, *fields[3:])
    count = last_offset_delta + 1
    return Appended(first_offset, last_offset, count, max_timestamp, False, marks, tag, (header,))
