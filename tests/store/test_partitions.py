"""A partition of every side: what is appended is read back, in order and whole, once committed."""

from functools import partial

import pytest

from app.store.port import LookUp, Partition, Run, entry_of
from engine.errors import (
    OffsetBelowLogStart,
    OffsetBeyondLogEnd,
    ProducerNotFound,
    SequenceGap,
    WouldBlock,
)
from engine.log.results import Appended, Fetched
from engine.records.batch import BatchView
from engine.records.budget import DecodeBudget, DecodeLimits
from engine.records.scan import iter_headers
from engine.types import Buffer, FetchIsolation, TimestampAndOffset
from tests.store.conftest import Side
from tests.support.builders import new_batch, values_of
from tests.support.time import START_MS

pytestmark = pytest.mark.anyio

WHOLE = 1 << 20


async def append(side: Side, partition: Partition, data: Buffer) -> Appended:
    """Append, and wait for the commit."""
    run: Run = side.workers.write
    appended = await partition.append(lambda: data, acks="all", checked=False, run=run)
    await partition.committed(appended.last_offset + 1)
    return appended


def values(fetched: Fetched) -> list[tuple[int, bytes | None]]:
    """The offsets and values of what was read."""
    batches = [BatchView(fetched.data, position) for position, _ in iter_headers(fetched.data)]
    return [(record.offset, record.value) for batch in batches for record in batch.records()]


async def test_what_is_committed_is_read_back(side: Side) -> None:
    """Offsets count up, batches keep their bounds, and a read begins with the whole batch."""
    partition = await side.partition()
    first = await append(side, partition, values_of([b"a", b"b"]))
    second = await append(side, partition, values_of([b"c"]) + values_of([b"d"]))
    assert [(one.base_offset, one.last_offset) for one in (first, second)] == [(0, 1), (2, 3)]
    marks = partition.watermarks
    assert (marks.log_start_offset, marks.high_watermark, marks.log_end_offset) == (0, 4, 4)
    read = await partition.read(1, max_bytes=WHOLE)
    assert values(read) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    assert (read.first_offset, read.next_offset) == (0, 4)
    assert partition.identity in side.moved


async def test_a_read_keeps_to_its_bounds(side: Side) -> None:
    """At least one batch, no more bytes than wanted, nothing from the end offset on."""
    partition = await side.partition()
    for number in range(3):
        await append(side, partition, values_of([b"%d" % number]))
    assert values(await partition.read(0, max_bytes=1)) == [(0, b"0")]
    one = len((await partition.read(0, max_bytes=1)).data)
    assert len((await partition.read(0, max_bytes=2 * one)).data) == 2 * one
    ended = await partition.read(0, max_bytes=WHOLE, end_offset=2)
    assert (values(ended), ended.next_offset) == ([(0, b"0"), (1, b"1")], 2)
    nothing = await partition.read(0, max_bytes=1, minimum_one_batch=False)
    assert (bytes(nothing.data), nothing.next_offset) == (b"", 0)
    last = await partition.read(3, max_bytes=WHOLE)
    assert (bytes(last.data), last.next_offset) == (b"", 3)
    with pytest.raises(OffsetBeyondLogEnd):
        await partition.read(4, max_bytes=WHOLE)


async def test_the_short_cuts_do_the_same_or_nothing(side: Side) -> None:
    """What cannot be done without waiting is declined: the caller then waits."""
    partition = await side.partition()
    await append(side, partition, new_batch(2))
    whole = await partition.read(0, max_bytes=WHOLE)
    now = partition.read_now(0, max_bytes=WHOLE)
    assert now is None or bytes(now.data) == bytes(whole.data)
    try:
        appended = partition.append_now(new_batch(1), acks="all", checked=True)
    except WouldBlock:
        assert partition.watermarks.log_end_offset == 2
    else:
        await partition.committed(appended.last_offset + 1)
        assert partition.watermarks.high_watermark == 3


async def test_whoever_waits_for_a_commit_is_told_once(side: Side) -> None:
    """Later and without an error; only for uncommitted records."""
    partition = await side.partition()
    told: list[Exception | None] = []
    run: Run = side.workers.write
    appended = await partition.append(partial(new_batch, 2), acks="all", checked=True, run=run)
    is_waiting = partition.when_committed(appended.last_offset + 1, told.append)
    partition.commit_soon()
    await partition.committed(appended.last_offset + 1)
    assert told == [None] * is_waiting
    assert not partition.when_committed(appended.last_offset + 1, told.append)


async def test_records_are_given_up(side: Side) -> None:
    """Below the new start nothing is read; above the high watermark nothing can be given up."""
    partition = await side.partition()
    await append(side, partition, values_of([b"a", b"b", b"c"]))
    with pytest.raises(OffsetBeyondLogEnd):
        await partition.delete_records(4)
    await partition.delete_records(2)
    assert partition.watermarks.log_start_offset == 2
    with pytest.raises(OffsetBelowLogStart):
        await partition.read(1, max_bytes=WHOLE)
    assert values(await partition.read(2, max_bytes=WHOLE))[-1] == (2, b"c")
    await partition.delete_records(-1)
    assert partition.watermarks.log_start_offset == 3


async def test_records_are_found_by_time(side: Side) -> None:
    """The first at or after a time, and the one with the greatest."""
    partition = await side.partition()

    async def run(look_up: LookUp, *, in_archive: bool = False) -> TimestampAndOffset | None:
        limits = DecodeLimits(max_decoded_bytes=WHOLE, max_decode_cpu_ms=60_000)
        work = partial(look_up, DecodeBudget(limits))
        return await side.workers.read(work, in_archive=in_archive)

    assert await partition.max_timestamp(run) is None
    for minute in (0, 2, 1):
        await append(side, partition, new_batch(1, timestamp=START_MS + minute * 60_000))
    second = TimestampAndOffset(START_MS + 120_000, 1, partition.leader_epoch)
    assert await partition.offset_for_time(START_MS + 1, run) == second
    assert await partition.offset_for_time(second.timestamp + 1, run) is None
    assert await partition.max_timestamp(run) == second


async def test_splits_cover_their_range_once(side: Side) -> None:
    """Each begins where the one before it ends, and none is longer than wanted."""
    partition = await side.partition()
    for _ in range(4):
        await append(side, partition, new_batch(5))
    bound = FetchIsolation.HIGH_WATERMARK
    splits = await partition.splits(3, 20, bound, parts=4, max_offsets=6, at_most=100)
    assert splits[0][0] == 3
    assert splits[-1][1] == 20
    assert [end for _, end, _ in splits[:-1]] == [start for start, _, _ in splits[1:]]
    assert all(0 < end - start <= 6 for start, end, _ in splits)
    few = await partition.splits(3, 20, bound, parts=4, max_offsets=6, at_most=1)
    assert list(few) == list(splits[:1])
    assert await partition.extent_bytes(0, 20, bound) > await partition.extent_bytes(5, 20, bound)
    with pytest.raises(OffsetBeyondLogEnd):
        await partition.splits(0, 21, bound, parts=1, max_offsets=None, at_most=1)


async def test_a_producer_writes_each_batch_once(side: Side) -> None:
    """A batch sent again is a duplicate with the first one's offsets; a gap is refused."""
    partition = await side.partition()
    producer_id, epoch = await side.store.topics.allocate_producer()
    batch = partial(new_batch, producer_id=producer_id, producer_epoch=epoch)
    first = await append(side, partition, batch(2, base_sequence=0))
    again = await append(side, partition, batch(2, base_sequence=0))
    assert (again.is_duplicate, again.base_offset) == (True, first.base_offset)
    with pytest.raises(SequenceGap):
        await append(side, partition, batch(1, base_sequence=5))
    assert partition.watermarks.log_end_offset == 2
    entry = entry_of(await partition.producers(), partition.topic_partition, producer_id)
    assert (entry.producer_epoch, entry.last_sequence) == (epoch, 1)
    with pytest.raises(ProducerNotFound):
        entry_of(await partition.producers(), partition.topic_partition, producer_id + 1)
