"""The plain way of small batches: the result of the general way, or no change."""

import errno
from collections.abc import Callable

import pytest

from engine.errors import StorageFull, StorageOffline
from engine.log.log import Log
from engine.log.results import Appended
from engine.records.header import Codec
from engine.topic_keys import HOUR_MS
from engine.types import AppendOrigin
from tests.support.builders import World, new_batch
from tests.support.logs import fill, log_path, with_config
from tests.support.time import START_MS

CONFIG = with_config(index_interval_bytes=10_000)


def ready(world: World | None = None, **settings: object) -> Log:
    """A log whose active segment is open and has a batch: the next append is only a write."""
    log = (world or World()).open_log(with_config(**{"index_interval_bytes": 10_000, **settings}))
    fill(log, batches=1)
    return log


def in_new_segment() -> Log:
    """A log whose active segment is empty."""
    log = ready()
    log.roll()
    return log


def try_plain(log: Log, batch: bytearray) -> Appended | None:
    return log._append_plain(batch, START_MS, nonblocking=False)  # noqa: SLF001  # its None is tested


@pytest.mark.parametrize("interval_bytes", [1, 10_000])
@pytest.mark.parametrize("times", [(START_MS, START_MS + 5, START_MS + 3), (-1, -1, -1)])
def test_it_appends_what_the_general_path_appends(
    times: tuple[int, ...], interval_bytes: int
) -> None:
    """The same file, result and indexes, by either path."""
    results, files = [], []
    for is_plain in (True, False):
        world = World()
        log = ready(world, index_interval_bytes=interval_bytes)
        for count, time in enumerate(times, 1):
            batch = new_batch(count, timestamp=time)
            appended = try_plain(log, batch) if is_plain else log.append(batch)
            assert appended is not None
            values = (*appended[:-1], *appended.headers)
            results.append((values, bytes(batch), log.reader.max_timestamp()))
        log.durability.flush()
        log.close()
        paths = (log_path(suffix=suffix) for suffix in (".log", ".index", ".timeindex"))
        files.append([world.disk.read_bytes(path) for path in paths])
    assert results[: len(times)] == results[len(times) :]
    assert files[0] == files[1]


ROLLS = {
    "full": {"segment_bytes": 1_000},
    "too old": {"segment_ms": 20},
    "few entries": {"index_interval_bytes": 1, "segment_index_bytes": 40},
    "an entry now and then": {"index_interval_bytes": 200, "segment_index_bytes": 60},
}


@pytest.mark.parametrize("times", ["go on", "are equal", "are not there"])
@pytest.mark.parametrize("name", ROLLS)
def test_leased_room_ends_where_the_general_way_rolls(name: str, times: str) -> None:
    """Segments, indexes and results are those of a log that asks at every append."""
    times_ms = {
        "go on": [START_MS + 3 * count for count in range(40)],
        "are equal": [START_MS] * 40,
        "are not there": [-1] * 40,
    }[times]
    files, ends = [], []
    for checked in (True, False):
        world = World()
        log = world.open_log(with_config(**ROLLS[name]))
        for count, time_ms in enumerate(times_ms):
            batch = new_batch(1 + count % 3, timestamp=time_ms)
            ends.append(log.append(batch, checked=checked)[:-2])
            log._core.state.check_invariants()  # noqa: SLF001  # leased room is true
        log.close()
        names = sorted(world.disk.list_directory(log.directory))
        files.append([(name, world.disk.read_bytes(log.directory / name)) for name in names])
    assert ends[:40] == ends[40:]
    assert files[0] == files[1]


TAKES_BACK: dict[str, Callable[[Log], object]] = {
    "a roll": lambda log: log.roll(),
    "a truncation": lambda log: log.truncate_to(1),
    "another configuration": lambda log: log.maintenance.update_config(CONFIG),
    "a copy's batch in a later epoch": lambda log: log.append(
        new_batch(base_offset=3, leader_epoch=7), origin=AppendOrigin.REPLICATION
    ),
    "a close": lambda log: log.close(),
}


@pytest.mark.parametrize("name", TAKES_BACK)
def test_room_is_taken_back_by(name: str) -> None:
    """What changes the answers ends the lease; the next append asks again."""
    log = ready(index_interval_bytes=1)
    for _ in range(2):
        log.append(new_batch(), checked=True)
    segment = log._core.state.local.active  # noqa: SLF001  # the lease is not to be seen outside
    asked = (70, START_MS, 3, log.config)
    assert segment.has_room(*asked)
    TAKES_BACK[name](log)
    assert not segment.has_room(*asked[:-1], log.config)


UNUSUAL: dict[str, tuple[Callable[[], Log], bytearray]] = {
    "the first append": (lambda: World().open_log(CONFIG), new_batch()),
    "its indexes are not open": (in_new_segment, new_batch()),
    "no room": (lambda: ready(segment_bytes=140), new_batch()),
    "a record of the future": (lambda: ready(segment_ms=9), new_batch(timestamp=START_MS + 10)),
    "a time too far away": (ready, new_batch(timestamp=START_MS + 2 * HOUR_MS)),
    "too large": (lambda: ready(max_message_bytes=100), new_batch(value=b"x" * 200)),
    "an idempotent producer": (
        ready,
        new_batch(producer_id=1, producer_epoch=0, base_sequence=0),
    ),
    "a compressed batch": (ready, new_batch(codec=Codec.ZSTD)),
    "two batches": (ready, new_batch() + new_batch()),
    "no batch": (ready, bytearray()),
    "a codec of the topic": (lambda: ready(compression_type="gzip"), new_batch()),
    "log-append time": (lambda: ready(message_timestamp_type="LogAppendTime"), new_batch()),
    "old times refused": (lambda: ready(message_timestamp_before_max_ms=HOUR_MS), new_batch()),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_append_is_left_to_the_general_path(name: str) -> None:
    """Nothing has changed then, in the log and in the batch."""
    make, batch = UNUSUAL[name]
    log, batch = make(), bytearray(batch)
    before = bytes(batch), log.watermarks, log.reader.size_bytes
    assert try_plain(log, batch) is None
    assert (bytes(batch), log.watermarks, log.reader.size_bytes) == before


def test_a_compacted_log_judges_keys_itself() -> None:
    """It refuses records without a key, which only the general path looks for."""
    log = World().open_log(CONFIG)
    log.append(new_batch())
    log.maintenance.update_config(with_config(cleanup_policy=("compact",)))
    assert try_plain(log, new_batch()) is None


def test_a_closed_log_takes_nothing() -> None:
    """The general path raises the error."""
    log = ready()
    log.close()
    assert try_plain(log, new_batch()) is None


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.ENOSPC, StorageFull), (errno.EFBIG, StorageFull), (errno.EIO, StorageOffline)],
)
def test_a_failed_write_leaves_log_and_batch_as_they_were(
    number: int, error: type[Exception]
) -> None:
    """A full disk refuses the append; any other failure takes the directory offline."""
    world = World()
    log, batch = ready(world), new_batch()
    before = bytes(batch), log.watermarks, log.reader.size_bytes
    world.disk.fail("append", path_end=".log", error=number)
    with pytest.raises(error):
        log.append(batch, checked=True)
    assert (bytes(batch), log.watermarks, log.reader.size_bytes) == before
    if error is StorageOffline:
        with pytest.raises(StorageOffline):
            log.append(batch, checked=True)
    else:
        assert log.append(batch, checked=True).base_offset == 1


def test_a_batch_that_cannot_be_stamped_is_left_to_the_general_path() -> None:
    """It stamps a copy; the caller's bytes are immutable."""
    log, batch = ready(), bytes(new_batch())
    assert log.append(batch, checked=True).base_offset == 1
    assert batch == bytes(new_batch())
