"""Appends of one turn of the loop: one write, and to each client as if it had been alone."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable

import pytest

from app.codecs.calls import AppendCall
from app.http.answers import RECORD_BATCH, etag_of
from app.operations.append import batching
from app.operations.append.append import SHARED_BYTES, Append, BatchesAppend, RecordsAppend, Way
from app.operations.append.batching import Batcher
from app.operations.service import Service, local_partition
from app.store.local.partition import LocalPartition
from engine.errors import CorruptBatch, InvalidRecord, StorageOffline, TooLarge
from engine.fs.port import FileSystem
from engine.records.header import HEADER_BYTES, BatchHeader, Codec
from tests.support.builders import DATA, SMALL_INDEXES, new_batch, with_data
from tests.support.filesystem import ForgetfulDisk
from tests.support.logs import read_headers, read_records, read_values
from tests.support.service import local, open_service
from tests.support.time import START_MS, ManualClock
from tests.support.wire import one_iteration, turn

pytestmark = pytest.mark.anyio


@pytest.fixture
def disk() -> ForgetfulDisk:
    """An empty disk in memory with a folder for the data."""
    return with_data(ForgetfulDisk())


@pytest.fixture
async def service(disk: FileSystem, anyio_backend: str) -> AsyncIterator[Service]:
    """An open service on that disk."""
    options = {"default_topic_config": dict(SMALL_INDEXES), "inline_append_bytes": 64 * 1024}
    async with open_service(DATA, fs=disk, clock=ManualClock(), **options) as service:
        yield service


def partition_of(service: Service, topic: str = "events", **config: str) -> LocalPartition:
    """An empty log that takes what comes at once: a first append has noted its epoch."""
    local(service).manager.create_topic(topic, 1, config)
    partition = local_partition(service.partition(topic, 0))
    partition.log.append(new_batch(1))
    partition.log.truncate_to(0)
    return partition


def batches_append(
    service: Service, partition: LocalPartition, call: AppendCall | None = None
) -> BatchesAppend:
    judged = BatchesAppend.options_of({b"content-type": RECORD_BATCH}, call or AppendCall("1"))
    return BatchesAppend(service, partition, judged)


class Gathering:
    """Appends of one turn, and what became of each."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.batcher = Batcher(service)
        self.appends: list[Append] = []
        self.outcomes: dict[int, Exception | None] = {}

    def add(
        self,
        partition: LocalPartition,
        value_bytes: int = 1,
        *,
        acks: str = "1",
        then: Callable[[], None] = lambda: None,
    ) -> None:
        judged = RecordsAppend.options_of({}, AppendCall(acks))
        append = RecordsAppend(self._service, partition, judged)
        self._add(append, body_of("x" * value_bytes), then)

    def add_records(
        self, partition: LocalPartition, body: bytes, *, is_ndjson: bool = False
    ) -> None:
        judged = RecordsAppend.options_of(NDJSON_HEAD if is_ndjson else {}, AppendCall("1"))
        self._add(RecordsAppend(self._service, partition, judged), body)

    def add_batch(self, partition: LocalPartition, body: bytes) -> None:
        append = batches_append(self._service, partition)
        assert append.way_of(body) is Way.SHARED
        self._add(append, body)

    def _add(self, append: Append, body: bytes, then: Callable[[], None] = lambda: None) -> None:
        append.take(body)
        number = len(self.appends)
        self.appends.append(append)

        def told(outcome: Exception | None) -> None:
            self.outcomes[number] = outcome
            then()

        self.batcher.add(append, len(body), told)

    async def put(self) -> list[Exception | None]:
        """Let the turn end; return the outcomes in the order of the appends."""
        await turn()
        return [self.outcomes[number] for number in range(len(self.appends))]

    def receipts(self) -> list[dict[str, object]]:
        return [json.loads(append.receipt().body) for append in self.appends]


NDJSON_HEAD = {b"content-type": b"application/x-ndjson"}


def body_of(value: str, *timestamps: int) -> bytes:
    """A body with a record for each of these times, or with one that has none."""
    timed = [{"value": value, "timestamp": timestamp} for timestamp in timestamps]
    return json.dumps({"records": timed or [{"value": value}]}).encode()


def headers_of(partition: LocalPartition) -> list[BatchHeader]:
    """The header of each batch, whether it has been flushed by now or not."""
    partition.log.durability.commit()
    return read_headers(partition.log)


def appends_of(disk: ForgetfulDisk) -> int:
    """How often a segment was written."""
    return sum(change.name == "append" and change.path.suffix == ".log" for change in disk.changes)


async def test_the_appends_of_a_turn_are_one_write_a_log(
    service: Service, disk: ForgetfulDisk
) -> None:
    """Each gets its own offsets."""
    first, second = partition_of(service), partition_of(service, "others")
    gathering = Gathering(service)
    before = appends_of(disk)
    for partition in (first, second, first, first):
        gathering.add(partition)
    assert await gathering.put() == [None] * 4
    assert appends_of(disk) == before + 2
    offsets = [receipt["base_offset"] for receipt in gathering.receipts()]
    assert offsets == [0, 0, 1, 2]
    assert gathering.appends[2].end_offset == 2


async def test_while_more_logs_come_all_wait_for_the_next_turn(
    service: Service, disk: ForgetfulDisk
) -> None:
    """They share one sync. An append to a log that is among them already delays none of them."""
    first, second, third = (partition_of(service, name) for name in ("one", "two", "three"))
    gathering = Gathering(service)
    before = appends_of(disk)
    gathering.add(first)
    gathering.add(second)
    await one_iteration()
    gathering.add(third)
    await one_iteration()
    assert appends_of(disk) == before
    gathering.add(first)
    await one_iteration()
    assert appends_of(disk) == before + 3
    assert gathering.outcomes == dict.fromkeys(range(4))


async def test_of_so_many_logs_none_waits_for_another_turn(
    service: Service, disk: ForgetfulDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise clients that go on to new logs would keep the first one waiting."""
    monkeypatch.setattr(batching, "GATHERED_LOGS", 2)
    gathering = Gathering(service)
    for name in ("one", "two"):
        gathering.add(partition_of(service, name))
    before = appends_of(disk)
    await one_iteration()
    assert appends_of(disk) == before + 2


async def test_small_bodies_share_a_batch(service: Service) -> None:
    """The records of the turn are one batch, as in Kafka's producer; alone each has its own."""
    partition = partition_of(service)
    for count in (3, 1, 2):
        gathering = Gathering(service)
        for _ in range(count):
            gathering.add(partition)
        assert await gathering.put() == [None] * count
    assert [header.records_count for header in headers_of(partition)] == [3, 1, 2]


async def test_a_batch_is_shared_up_to_its_limit(service: Service, disk: ForgetfulDisk) -> None:
    """More bodies begin another batch, and so does one that leaves no room; the write is one."""
    partition = partition_of(service)
    gathering = Gathering(service)
    empty_bytes = len(body_of(""))
    half = SHARED_BYTES // 2 - empty_bytes
    before = appends_of(disk)
    for value_bytes in (half, half, 1, half * 3, 1, 1):
        gathering.add(partition, value_bytes)
    assert await gathering.put() == [None] * 6
    assert appends_of(disk) == before + 1
    assert [header.records_count for header in headers_of(partition)] == [2, 1, 1, 2]
    assert [append.end_offset for append in gathering.appends] == [1, 2, 3, 4, 5, 6]


async def test_a_batch_is_shared_up_to_what_the_topic_takes(
    service: Service, disk: ForgetfulDisk
) -> None:
    """A small `max.message.bytes` makes more batches, and still one write."""
    partition = partition_of(service, **{"max.message.bytes": "250"})
    gathering = Gathering(service)
    before = appends_of(disk)
    for _ in range(12):
        gathering.add(partition, 30)
    assert await gathering.put() == [None] * 12
    assert appends_of(disk) == before + 1
    headers = headers_of(partition)
    assert [header.records_count for header in headers] == [3] * 4
    assert max(header.size_bytes for header in headers) <= 250


async def test_what_is_too_large_together_has_a_batch_each(
    service: Service, disk: ForgetfulDisk
) -> None:
    """Records far from the batch's base time take more than their bodies; the write is one."""
    lines = [b'{"value":1,"timestamp":0}', *[b'{"value":1}'] * 30]
    room_bytes = sum(map(len, lines))
    options = {"max.message.bytes": str(HEADER_BYTES + room_bytes), "retention.ms": "-1"}
    partition = partition_of(service, **options)
    gathering = Gathering(service)
    before = appends_of(disk)
    for line in lines:
        gathering.add_records(partition, line, is_ndjson=True)
    assert await gathering.put() == [None] * len(lines)
    assert appends_of(disk) == before + 1
    assert [header.records_count for header in headers_of(partition)] == [1] * len(lines)


async def test_bodies_of_many_records_share_a_batch_too(service: Service) -> None:
    """They come in columns, which are joined as such; beside a small body they are not."""
    many = [
        b"\n".join(b'{"key":"%d","value":%d}' % (n, first + n) for n in range(60))
        for first in (0, 500)
    ]
    for bodies in (many, [*many, b'{"value":7}']):
        together, alone = (
            partition_of(service, f"t{len(bodies)}"),
            partition_of(service, f"a{len(bodies)}"),
        )
        gathering = Gathering(service)
        for body in bodies:
            gathering.add_records(together, body, is_ndjson=True)
        assert await gathering.put() == [None] * len(bodies)
        for body in bodies:
            single = Gathering(service)
            single.add_records(alone, body, is_ndjson=True)
            await single.put()
        assert [receipt["count"] for receipt in gathering.receipts()] == [60, 60, 1][: len(bodies)]
        assert len(headers_of(together)) == 1
        headers_of(alone)
        assert read_records(together.log) == read_records(alone.log)


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
async def test_each_is_answered_as_if_it_had_been_alone(
    service: Service, timestamp_type: str
) -> None:
    """Offsets, count and time of a receipt are those of the same appends one after the other."""
    options = {"message.timestamp.type": timestamp_type}
    together, alone = partition_of(service, **options), partition_of(service, "others", **options)
    bodies = [body_of("x", START_MS - 3), body_of("y"), body_of("z", START_MS - 9, START_MS - 7)]
    gathering = Gathering(service)
    for body in bodies:
        gathering.add_records(together, body)
    await gathering.put()
    expected = []
    for body in bodies:
        single = Gathering(service)
        single.add_records(alone, body)
        await single.put()
        expected += single.receipts()
    told = ("base_offset", "last_offset", "count", "timestamp", "duplicate", "acks")
    for receipt, wanted in zip(gathering.receipts(), expected, strict=True):
        assert [receipt[name] for name in told] == [wanted[name] for name in told]
    assert [len(headers_of(partition)) for partition in (together, alone)] == [1, 3]
    assert read_records(together.log) == read_records(alone.log)


async def test_only_the_last_has_the_tag_of_the_log_end(service: Service) -> None:
    """A conditional append with an earlier receipt is refused if another append followed."""
    partition = partition_of(service)
    gathering = Gathering(service)
    for _ in range(3):
        gathering.add(partition)
    await gathering.put()
    tags = [append.receipt().head.split(b"\r\n")[3] for append in gathering.appends]
    assert len(set(tags)) == 3
    assert tags[2] == b"etag: " + etag_of(*partition.log.reader.tag)


async def test_a_codec_of_the_topic_is_that_of_a_shared_batch(service: Service) -> None:
    """What shares a batch is compressed together."""
    partition = partition_of(service, **{"compression.type": "zstd"})
    gathering = Gathering(service)
    for _ in range(3):
        gathering.add(partition, 300)
    assert await gathering.put() == [None] * 3
    (header,) = headers_of(partition)
    assert (header.codec, header.records_count) == (Codec.ZSTD, 3)
    assert header.size_bytes < 300
    assert read_values(partition.log) == [b'"%b"' % (b"x" * 300)] * 3


async def test_a_record_that_is_wrong_takes_no_other_with_it(service: Service) -> None:
    """It fails before a batch is built; the others share one."""
    partition = partition_of(service, **{"cleanup.policy": "compact"})
    gathering = Gathering(service)
    keyed = b'{"records":[{"key":"k","value":1}]}'
    gathering.add_records(partition, keyed)
    with pytest.raises(InvalidRecord):
        gathering.add_records(partition, body_of("without a key"))
    gathering.add_records(partition, keyed)
    assert await gathering.put() == [None, None]
    assert [header.records_count for header in headers_of(partition)] == [2]


async def test_one_that_is_refused_takes_no_other_with_it(service: Service) -> None:
    """The refused append gets its error; the others are appended without it."""
    partition = partition_of(service, **{"max.message.bytes": "200"})
    gathering = Gathering(service)
    for value_bytes in (1, 500, 1):
        gathering.add(partition, value_bytes)
    first, refused, last = await gathering.put()
    assert (first, last) == (None, None)
    assert isinstance(refused, TooLarge)
    assert gathering.appends[2].end_offset == partition.log.watermarks.log_end_offset == 2


async def test_a_disk_that_fails_is_told_to_all(service: Service, disk: ForgetfulDisk) -> None:
    """Nothing is tried again on a disk that has failed once."""
    partition = partition_of(service)
    gathering = Gathering(service)
    gathering.add(partition)
    gathering.add(partition)
    disk.fail("append", path_end=".log")
    assert [type(outcome) for outcome in await gathering.put()] == [StorageOffline] * 2
    assert partition.log.watermarks.log_end_offset == 0


async def test_what_would_be_too_much_is_not_waited_for(
    service: Service, disk: ForgetfulDisk
) -> None:
    """Before more than a few of the largest bodies are gathered, what is there is appended."""
    partition = partition_of(service)
    gathering = Gathering(service)
    before = appends_of(disk)
    for _ in range(3):
        gathering.add(partition, 120_000)
    assert appends_of(disk) == before + 1
    assert await gathering.put() == [None] * 3
    assert appends_of(disk) == before + 2


async def test_who_is_told_may_append_again(service: Service) -> None:
    """What comes while too much is being appended is gathered with what comes afterwards."""
    partition = partition_of(service)
    gathering = Gathering(service)
    again = Gathering(service)
    again.batcher = gathering.batcher
    gathering.add(partition, 120_000, then=lambda: again.add(partition))
    for _ in range(3):
        gathering.add(partition, 120_000)
    assert await gathering.put() == [None] * 4
    assert await again.put() == [None]
    assert partition.log.watermarks.log_end_offset == 5


async def test_who_waits_for_the_disk_has_it_flushed_for_all(service: Service) -> None:
    """One `acks=all` among them makes the round urgent; all of them are in it."""
    partition = partition_of(service)
    gathering = Gathering(service)
    gathering.add(partition)
    gathering.add(partition, acks="all")
    await gathering.put()
    await asyncio.wait_for(partition.committed(2), 30)
    assert partition.log.watermarks.high_watermark == 2


async def test_raw_batches_of_a_turn_are_one_write(service: Service, disk: ForgetfulDisk) -> None:
    """What clients encoded is looked into and written together, apart from what was made here."""
    partition = partition_of(service)
    gathering = Gathering(service)
    before = appends_of(disk)
    batch = bytes(new_batch(2))
    for _ in range(3):
        gathering.add_batch(partition, batch)
    gathering.add(partition)
    assert await gathering.put() == [None] * 4
    assert appends_of(disk) == before + 2
    offsets = [receipt["base_offset"] for receipt in gathering.receipts()]
    assert offsets == [0, 2, 4, 6]
    assert batch == bytes(new_batch(2)), "stamped in a copy: a body is its client's"
    assert [append.producer for append in gathering.appends] == [(-1, -1)] * 4


async def test_an_append_that_is_in_the_log_holds_no_batch(service: Service) -> None:
    """It may be kept for long, to answer a repetition; it still knows its producer."""
    body = bytes(new_batch(1, producer_id=7, producer_epoch=0, base_sequence=0))
    append = batches_append(service, partition_of(service))
    append.run_now(body)
    assert body not in gc.get_referents(append)
    assert append.producer == (7, 0)


async def test_a_damaged_batch_takes_no_other_with_it(service: Service) -> None:
    """Its client gets the error, and the batches of the others are appended."""
    partition = partition_of(service)
    gathering = Gathering(service)
    damaged = new_batch(1)
    damaged[-1] ^= 1
    for body in (bytes(new_batch(1)), bytes(damaged), bytes(new_batch(1))):
        gathering.add_batch(partition, body)
    first, refused, last = await gathering.put()
    assert (first, last) == (None, None)
    assert isinstance(refused, CorruptBatch)
    assert partition.log.watermarks.log_end_offset == 2


async def test_only_one_batch_without_a_producer_is_put_with_others(service: Service) -> None:
    """What the log has to judge for itself, or cannot be taken apart, goes alone."""
    partition = partition_of(service)
    one = bytes(new_batch(1))
    plain = batches_append(service, partition)
    assert plain.way_of(one) is Way.SHARED
    of_producer = bytes(new_batch(1, producer_id=7, producer_epoch=0, base_sequence=0))
    for body in (b"", one[:60], one + one, one + b"x", one[:16] + b"\x01" + one[17:], of_producer):
        assert plain.way_of(body) is Way.ALONE
    call = AppendCall("1", expected_end_offset=0)
    assert batches_append(service, partition, call).way_of(one) is Way.ALONE
