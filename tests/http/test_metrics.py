"""The metrics of logs and directories: protocol rule H5."""

import errno
import shutil
import struct
from importlib.metadata import version
from pathlib import Path

import pytest

from engine.fs.posix import PosixFileSystem
from engine.records.batch import stamp_crc
from engine.records.header import LAST_OFFSET_DELTA_POSITION
from tests.support.builders import new_batch
from tests.support.kafka import kafka
from tests.support.service import BATCHES, RAW, RECORDS, Api, running

pytestmark = pytest.mark.anyio


async def lines_of(api: Api) -> set[str]:
    text = (await api.client.get("/metrics")).text
    return {line for line in text.splitlines() if not line.startswith("#")}


async def values(api: Api) -> dict[str, float]:
    """Every sample by its name with its labels."""
    split = (line.rpartition(" ") for line in await lines_of(api))
    return {name: float(value) for name, _, value in split}


async def test_every_log_shows_its_size_and_offsets(api: Api) -> None:
    """Bytes, segments and offsets of a partition, and the sums of its topic."""
    await api.append("a", "b")
    size = float(api.log().reader.size_bytes)
    assert {
        'tidelog_log_end_offset{partition="0",topic="events"} 2.0',
        'tidelog_log_high_watermark{partition="0",topic="events"} 2.0',
        'tidelog_log_segments{partition="0",topic="events"} 1.0',
        f'tidelog_log_size_bytes{{partition="0",topic="events"}} {size}',
        f'tidelog_topic_size_bytes{{topic="events"}} {size}',
        'tidelog_topic_partitions{topic="events"} 1.0',
        "tidelog_partitions 1.0",
        "tidelog_remaining_logs_to_recover 0.0",
    } <= await lines_of(api)


@kafka("LogManagerTest.testMetricsExistWhenLogIsRecreatedBeforeDeletion")
async def test_a_topic_made_again_shows_its_own_figures(api: Api) -> None:
    """While the files of the deleted one still wait for their removal."""
    await api.append("a", "b", "c")
    assert (await api.client.delete("/v1/topics/events")).status_code == 204
    assert not [line for line in await lines_of(api) if line.startswith("tidelog_log_end_offset")]
    await api.create()
    await api.append("a")
    assert 'tidelog_log_end_offset{partition="0",topic="events"} 1.0' in await lines_of(api)


async def test_bytes_above_the_high_watermark_are_counted(tmp_path: Path) -> None:
    """Appended, unflushed bytes count; a flush sets them to zero."""
    async with running(tmp_path, commit_interval_ms=3_600_000) as api:
        await api.create()
        await api.append("seen")
        seen = api.log().reader.size_bytes
        await api.append("unseen", path=f"{RECORDS}?acks=1")
        waiting = float(api.log().reader.size_bytes - seen)
        assert waiting > 0
        name = 'tidelog_log_unflushed_bytes{partition="0",topic="events"}'
        assert {f"{name} {waiting}", f"tidelog_unflushed_bytes {waiting}"} <= await lines_of(api)
        api.log().durability.flush()
        assert f"{name} 0.0" in await lines_of(api)


async def test_partitions_beyond_the_limit_are_in_the_sums_alone(tmp_path: Path) -> None:
    """The number of series is bounded; nothing vanishes silently."""
    async with running(tmp_path, max_metric_partitions=2) as api:
        await api.create(partitions=5)
        lines = await lines_of(api)
        single = [line for line in lines if line.startswith("tidelog_log_end_offset{")]
        assert len(single) == 2
        assert {
            "tidelog_partitions 5.0",
            "tidelog_partitions_without_series 3.0",
            'tidelog_topic_partitions{topic="events"} 5.0',
        } <= lines


async def test_producers_and_late_transactions_are_counted(api: Api) -> None:
    """A producer is remembered; its transaction is late once it has been silent for too long."""
    batch = new_batch(producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True)
    answer = await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    assert answer.status_code == 201, answer.text
    lines = await lines_of(api)
    assert "tidelog_producers 1.0" in lines
    assert "tidelog_partitions_with_late_transactions 1.0" in lines


@kafka("LogValidatorTest.testNonIncreasingOffsetRecordBatchHasMetricsLogged")
async def test_a_batch_that_contradicts_itself_is_counted(api: Api) -> None:
    """By the code of the problem that answers it."""
    batch = new_batch(3)
    struct.pack_into(">i", batch, LAST_OFFSET_DELTA_POSITION, 0)
    stamp_crc(batch, 0, len(batch))
    answer = await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    assert answer.status_code == 422, answer.text
    code = answer.json()["code"]
    assert f'tidelog_problems_total{{code="{code}"}} 1.0' in await lines_of(api)


async def test_a_failed_directory_is_told_by_name(api: Api) -> None:
    """0 while a data directory takes writes, 1 afterwards."""
    directory = api.local.manager.health.directory
    name = f'tidelog_log_directory_offline{{log_directory="{directory}"}}'
    assert f"{name} 0.0" in await lines_of(api)
    api.local.manager.health.fail(OSError(5, "Input/output error"))
    assert f"{name} 1.0" in await lines_of(api)


async def test_the_space_of_each_directory_is_shown_unless_it_is_not_known(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size and free bytes as the system says them; a zero would be an alarm."""
    label = f'{{log_directory="{api.service.settings.data_directory}"}}'
    shown = await values(api)
    total, free = (shown[f"tidelog_log_directory_{one}_bytes{label}"] for one in ("total", "free"))
    assert 0 < free < total == shutil.disk_usage(tmp_path).total

    def unknown(*_: object) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(PosixFileSystem, "space", unknown)
    assert not any("directory_free_bytes{" in name for name in await values(api))


async def test_release_and_process_are_shown(api: Api) -> None:
    """What runs, and what it uses, under the names of Prometheus' own clients."""
    shown = await values(api)
    assert shown[f'tidelog_build_info{{version="{version("tidelog")}"}}'] == 1
    assert 0 < shown["process_open_fds"] < shown["process_max_fds"]
    assert shown["process_resident_memory_bytes"] > 1_000_000


async def test_a_directory_that_is_short_is_told(tmp_path: Path) -> None:
    """A copy whose checkpoints are younger than its logs: how many records are not there."""
    async with running(tmp_path) as api:
        await api.create()
        for value in range(4):
            await api.append(value)
        assert "tidelog_missing_records_total 0.0" in await lines_of(api)
    (log,) = (tmp_path / "events-0").glob("*.log")
    content = log.read_bytes()
    log.write_bytes(content[: len(content) // 2])  # four batches of one size
    async with running(tmp_path) as api:
        assert "tidelog_missing_records_total 2.0" in await lines_of(api)
