"""Common to all reads: from a call to its batches, and the wait for more.

Bytes in the page cache are read on the event loop, bytes on disk by a worker. A reader at the end
waits for the commit that moves it, then looks again; nothing polls.
"""

from __future__ import annotations

from functools import partial

from app.codecs.calls import ReadCall
from app.operations.exchange import Exchange
from app.operations.service import Service, local_partition
from app.store.port import Partition
from engine.errors import LogReplaced, OffsetBelowLogStart, OffsetBeyondLogEnd
from engine.log.results import Fetched, ReadEnd
from schemas.common import EARLIEST, LATEST


def ensure_current(service: Service, partition: Partition) -> None:
    """Raise unless the partition is still the same: TopicNotFound, LogReplaced."""
    if service.partition(partition.topic, partition.number).identity != partition.identity:
        raise _replaced(partition, expected=None)


def ensure_log_id(partition: Partition, log_id: str | None) -> None:
    """Raise LogReplaced if the log is not the requested one."""
    if log_id is not None and log_id != partition.log_id:
        raise _replaced(partition, expected=log_id)


def ensure_read_of(partition: Partition, log_id: str | None, fetched: Fetched) -> None:
    """Raise LogReplaced if what was read is not of the requested log.

    Looked at before a read, the log may be truncated until the read; only what was read says of
    which log it is.
    """
    if log_id is not None and log_id != partition.log_id_at(fetched.leader_epoch):
        raise _replaced(partition, expected=log_id)


def numbered(partition: Partition, offset: int) -> int:
    """Return an offset that may be a name: the log start, or the high watermark."""
    if offset == EARLIEST:
        return partition.watermarks.log_start_offset
    return partition.watermarks.high_watermark if offset == LATEST else offset


async def with_end(partition: Partition, call: ReadCall) -> ReadCall:
    """Return the call with a number in place of a named end.

    Raises LogReplaced if the log is not the requested one.
    """
    end_offset = call.end_offset
    if end_offset is None or end_offset >= 0:
        return call
    ensure_log_id(partition, call.log_id)
    await partition.refresh()
    if end_offset == LATEST:
        end_offset = partition.watermarks.bound(call.isolation).offset
    return call._replace(end_offset=numbered(partition, end_offset), is_end_fixed=False)


def _replaced(partition: Partition, *, expected: str | None) -> LogReplaced:
    return LogReplaced(
        "the URL was made for another log",
        expected_log_id=expected,
        log_id=partition.log_id,
    )


async def start_offset(exchange: Exchange, partition: Partition, call: ReadCall) -> int:
    """Return the start of the read as a number; raises LogReplaced.

    Raises NotSupportedByBackend for an explanation of how a log elsewhere is read.
    """
    if call.explain:
        local_partition(partition)
    if call.start.offset is None:
        await partition.refresh()
    start = start_now(partition, call)
    if start is not None:
        return start
    end = partition.watermarks.bound(call.isolation).offset
    found = await partition.offset_for_time(call.start.timestamp, exchange.look_up)
    return end if found is None else found.offset


def start_now(partition: Partition, call: ReadCall) -> int | None:
    """Do what `start_offset` does with the offsets as they are known; None for a time."""
    ensure_log_id(partition, call.log_id)
    spec = call.start
    if spec.offset is not None:
        return spec.offset
    marks = partition.watermarks
    if spec.place == "earliest":
        return marks.log_start_offset
    if spec.place == "last":
        end = marks.bound(call.isolation).offset
        return max(marks.log_start_offset, end - spec.timestamp)
    return marks.bound(call.isolation).offset if spec.place == "latest" else None


def fetch_bytes(service: Service, call: ReadCall, default_bytes: int) -> int:
    """Return the maximum bytes of batches for a call."""
    max_bytes = default_bytes if call.max_bytes is None else call.max_bytes
    return min(max_bytes, service.settings.max_fetch_bytes)


async def fetch(
    partition: Partition,
    call: ReadCall,
    start: int,
    *,
    max_bytes: int,
    minimum_one_batch: bool = True,
    holder: str = "",
) -> tuple[int, Fetched]:
    """Read from `start`, or from where `on_out_of_range` moves the reader."""
    read = partial(
        partition.read,
        max_bytes=max_bytes,
        isolation=call.isolation,
        end_offset=call.end_offset,
        minimum_one_batch=minimum_one_batch,
        holder=holder,
    )
    try:
        fetched = await read(start)
    except (OffsetBelowLogStart, OffsetBeyondLogEnd):
        ensure_log_id(partition, call.log_id)
        instead = _instead(partition, call)
        if instead is None:
            raise
        start = instead
        fetched = await read(start)
    ensure_read_of(partition, call.log_id, fetched)
    return start, fetched


def fetch_now(
    partition: Partition,
    call: ReadCall,
    start: int,
    *,
    max_bytes: int,
    minimum_one_batch: bool = True,
    waits: bool = False,
) -> tuple[int, Fetched] | None:
    """Do what `fetch` does without waiting; None if that is not possible.

    `waits` as in `Partition.read_now`.
    """
    read = partial(
        partition.read_now,
        max_bytes=max_bytes,
        isolation=call.isolation,
        end_offset=call.end_offset,
        minimum_one_batch=minimum_one_batch,
        waits=waits,
    )
    try:
        fetched = read(start)
    except (OffsetBelowLogStart, OffsetBeyondLogEnd):
        ensure_log_id(partition, call.log_id)
        instead = _instead(partition, call)
        if instead is None:
            raise
        start = instead
        fetched = read(start)
    if fetched is None:
        return None
    ensure_read_of(partition, call.log_id, fetched)
    return start, fetched


def _instead(partition: Partition, call: ReadCall) -> int | None:
    """Return the start of an out-of-range read that `on_out_of_range` moves; None without it."""
    marks = partition.watermarks
    if call.on_out_of_range == "earliest":
        return marks.log_start_offset
    if call.on_out_of_range == "latest":
        return marks.bound(call.isolation).offset
    return None


def may_grow(fetched: Fetched) -> bool:
    """Whether a commit can extend this read: it ended at the end of the data, not at a bound."""
    return fetched.ended_by is ReadEnd.LOG_BOUND


def moved_since(partition: Partition, call: ReadCall, fetched: Fetched) -> bool:
    """Whether the log has moved since the read, perhaps on another thread."""
    bound = fetched.watermarks.bound(call.isolation)
    return partition.watermarks.bound(call.isolation).offset != bound.offset
