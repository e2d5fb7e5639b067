"""A broker served our directory for a while: what we had noted of its logs counts for nothing."""

import pytest

from engine.checkpoint.kafka_files import CleanShutdownMarker, OffsetCheckpoint, write_topic_id
from engine.fs import names
from engine.log.log import Log
from engine.records.scan import iter_headers
from engine.tools.verify import DirectoryCheck
from tests.support.builders import DATA, EVENTS, TOPIC_ID, World, new_batch
from tests.support.damage import rewrite

FOLDER = DATA / str(EVENTS)


def served_by_a_broker(world: World, *, was_killed: bool) -> None:
    """What a broker leaves: its own topic id, and a first segment with one batch after cleaning."""
    write_topic_id(world.fs, FOLDER / names.PARTITION_METADATA, TOPIC_ID)
    content = world.fs.read_bytes(FOLDER / names.log_name(0))
    _, first = next(iter(iter_headers(content)))
    rewrite(world.fs, FOLDER / names.log_name(0), content[: first.size_bytes])
    for name in (names.index_name(0), names.time_index_name(0)):
        world.fs.remove(FOLDER / name)
    if was_killed:
        CleanShutdownMarker(world.fs, DATA).delete()
        OffsetCheckpoint(world.fs, DATA / names.RECOVERY_POINT_CHECKPOINT).write({EVENTS: 0})


def filled() -> World:
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    for _ in range(3):
        for _ in range(4):
            log.append(new_batch())
        log.roll()
    log.durability.commit()
    manager.close()
    return world


def missing(world: World) -> list[str]:
    """The findings about missing offsets."""
    found = DirectoryCheck(world.fs, DATA).findings()
    return [one.detail for one in found if "are missing" in one.detail]


def ensure_kept(log: Log) -> None:
    assert log.watermarks.high_watermark == 12
    assert [segment.base_offset for segment in log.reader.segments] == [0, 4, 8, 12]
    assert log.durability.recovery.damage is None


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_gap_that_a_broker_compacted_is_no_lost_tail(*, was_killed: bool) -> None:
    """A start after it, clean or not, and every later one keep the segments after the gap."""
    world = filled()
    served_by_a_broker(world, was_killed=was_killed)
    assert not [
        one for one in DirectoryCheck(world.fs, DATA).findings() if "are missing" in one.detail
    ]
    ensure_kept(world.open_manager().log(EVENTS))
    world.restart(power_cut=True)
    OffsetCheckpoint(world.fs, DATA / names.RECOVERY_POINT_CHECKPOINT).write({EVENTS: 0})
    ensure_kept(world.open_manager().log(EVENTS))


def test_a_gap_in_a_log_of_our_own_is_a_lost_tail() -> None:
    """Under the id that tidelog assigned, no broker can have left out offsets."""
    world = filled()
    metadata = FOLDER / names.PARTITION_METADATA
    content = world.fs.read_bytes(metadata)
    served_by_a_broker(world, was_killed=True)
    rewrite(world.fs, metadata, content)
    assert missing(world)
    assert world.open_manager().log(EVENTS).watermarks.high_watermark == 1
