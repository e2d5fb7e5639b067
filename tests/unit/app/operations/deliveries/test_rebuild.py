"""The memory of deliveries, rebuilt from logs in small pieces."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.codecs.delivery_headers import STATE_HEADER, Seal, State
from app.operations.deliveries import rebuild
from app.operations.deliveries.rebuild import Rebuild
from app.operations.deliveries.table import DeliveryTable
from app.store.local.partition import LocalPartition
from engine.records.builder import build_batch
from engine.types import FetchIsolation
from tests.support.builders import new_batch
from tests.support.service import Api, running
from tests.support.time import START_MS

pytestmark = pytest.mark.anyio

MIB = 1 << 20
SECRET = b"secret"


@pytest.fixture
async def api(
    tmp_path: Path, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Api]:
    monkeypatch.setattr(rebuild, "READ_BYTES", 2_000)
    monkeypatch.setattr(rebuild, "RANGE_BYTES", 10_000)
    monkeypatch.setattr(rebuild, "_STEP_ENTRIES", 7)
    async with running(tmp_path, min_segment_bytes=14) as api:
        await api.create(partitions=3, segment_bytes=30_000)
        yield api


def digest(number: int) -> bytes:
    return Random(number).randbytes(16)


def write(api: Api, number: int, seconds: int, partition: int = 0, base: int = 0) -> int:
    """Append some records, of which the first has a delivery; return its offset."""
    state = State(digest(number), bytes(8), seconds * 1000, 2, 0)
    seal = Seal(SECRET, api.service.topic("events").topic_id)
    headers = [(STATE_HEADER, state.pack(seal, None, b"x" * 100))]
    records = [(START_MS, None, b"x" * 100, headers), (START_MS + base, None, b"y" * 200, [])]
    return api.log(partition=partition).append(build_batch(records)).base_offset


async def rebuilt(api: Api, **changes: Any) -> DeliveryTable:
    api.local.runtime.committer.wake()
    options: dict[str, Any] = {
        "since_ms": 0,
        "max_entries": 10_000,
        "max_bytes": 100 * MIB,
        "max_batch_bytes": MIB,
        "secret": SECRET,
        "run": api.service.workers.read,
    }
    partitions = api.service.partitions("events")
    for partition in partitions:
        api.log(partition=partition.number).durability.commit()
    return await Rebuild(partitions, **options | changes).table()


async def test_everything_is_found_oldest_first(api: Api) -> None:
    """Over many reads, ranges and segments of several logs."""
    chance = Random(1)
    offsets = {}
    for number in range(500):
        partition = chance.randrange(3)
        offsets[number] = (partition, write(api, number, number, partition))
        if chance.random() < 0.3:
            api.log(partition=partition).append(new_batch(3))
    table = await rebuilt(api)
    assert len(table) == 500
    for number in range(500):
        (found,) = table.find(digest(number))
        assert (found.partition, found.base_offset) == offsets[number]
        assert table.oldest_seconds() == number
        table.remove_oldest()


async def test_only_the_newest_are_taken(api: Api) -> None:
    """As many as are remembered; what is older is not read, but a range at a time is."""
    read = []
    real = LocalPartition.read

    async def noted(self: LocalPartition, offset: int, **options: Any) -> Any:
        read.append((self.number, offset))
        return await real(self, offset, **options)

    for number in range(300):
        write(api, number, number, number % 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalPartition, "read", noted)
        table = await rebuilt(api, max_entries=10)
    assert len(table) == 10
    assert all(table.find(digest(number)) for number in range(290, 300))
    assert {number for number, _ in read} == {0, 1, 2}
    assert min(offset for _, offset in read) > 100


async def test_it_reads_at_most_so_many_bytes(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """The newest of each log; what is not read is reported."""
    for number in range(300):
        write(api, number, number, number % 3)
    table = await rebuilt(api, max_bytes=45_000)
    assert 90 < len(table) < 200
    assert len(table.find(digest(299))) == 1
    assert table.find(digest(0)) == []
    assert "max_delivery_rebuild_bytes" in caplog.text


async def test_what_was_appended_before_the_window_is_not_read(api: Api) -> None:
    """The time at which a segment was written decides, not the times of its records."""
    for number in range(300):
        write(api, number, number)
    segments = api.log().reader.listing().segments
    assert len(segments) > 3
    table = await rebuilt(api, since_ms=segments[-1].modified_ms + 60_000)
    assert len(table) == 0


async def test_damage_does_not_end_it(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """What follows a damaged batch in its range may be forgotten; the rest is found."""
    for number in range(300):
        write(api, number, number)
    segments = api.log().reader.listing().segments
    path = api.log().directory / f"{segments[1].base_offset:020}.log"
    content = bytearray(path.read_bytes())
    content[content.index(b"yyy", len(content) // 2)] ^= 1
    path.write_bytes(content)
    table = await rebuilt(api)
    assert 200 < len(table) < 300
    assert "may be forgotten" in caplog.text


async def test_retention_may_run_meanwhile(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are removed while they are read do not end it."""
    for number in range(300):
        write(api, number, number)
    log = api.log()
    steps: list[int] = []
    real_extent, real_read = LocalPartition.extent_bytes, LocalPartition.read

    async def extent(self: LocalPartition, start: int, end: int, by: FetchIsolation) -> int:
        if not steps:
            steps.append(start)
            api.local.runtime.manager.delete_records(log, 100)
        return await real_extent(self, start, end, by)

    async def read(self: LocalPartition, offset: int, **options: Any) -> Any:
        if len(steps) == 1 and offset < 300:
            steps.append(offset)
            api.local.runtime.manager.delete_records(log, 400)
        return await real_read(self, offset, **options)

    monkeypatch.setattr(LocalPartition, "extent_bytes", extent)
    monkeypatch.setattr(LocalPartition, "read", read)
    table = await rebuilt(api)
    assert len(steps) == 2
    assert all(table.find(digest(number)) for number in range(200, 300))
