"""Offsets that were never assigned are not damage; missing ones are."""

import pytest

from engine.fs import names
from engine.manager.manager import LogManager
from engine.tools.findings import Finding, Severity
from engine.tools.verify import DirectoryCheck
from engine.types import AppendOrigin
from tests.support.builders import DATA, EVENTS, World
from tests.support.compaction import Compacted, keyed
from tests.support.damage import rewrite
from tests.support.logs import append_values, fill, read_records, segment_bases
from tests.support.segments import batch_at
from tests.unit.engine.manager.test_directories import A, B, opened, restarted

GAPS = A / str(EVENTS) / names.SEGMENT_GAPS


def jumped(world: World) -> LogManager:
    """A log that was given offsets with a jump from 3 to 10 where a segment begins."""
    manager = opened(world)
    size_bytes = 3 * len(batch_at(0))
    manager.create_topic("events", 1, {"retention.ms": "-1", "segment.bytes": size_bytes})
    log = manager.log(EVENTS)
    for offset in (0, 1, 2, 10, 11):
        log.append(batch_at(offset), origin=AppendOrigin.REPLICATION)
    log.durability.flush()
    assert segment_bases(log) == [0, 10]
    return manager


def damages(world: World) -> list[Finding]:
    return [
        one
        for one in DirectoryCheck(world.fs, A).findings()
        if one.severity is Severity.DAMAGE and one.file.parent == GAPS.parent
    ]


def test_a_jump_that_was_noted_is_no_damage() -> None:
    """Without the record of the gap, the missing offsets are reported."""
    world = World()
    jumped(world).close()
    assert damages(world) == []
    world.fs.remove(GAPS)
    (finding,) = damages(world)
    assert "offsets 3 to 9 are missing" in finding.detail


def test_notes_that_cannot_be_read_are_damage() -> None:
    """The file cannot be rebuilt: from now on missing offsets are not detected."""
    world = World()
    jumped(world).close()
    rewrite(world.fs, GAPS, b"0\n1\nrubbish\n")
    (finding,) = damages(world)
    assert finding.file == GAPS


def test_a_directory_in_the_place_of_the_notes_is_told_once() -> None:
    """An operator has to move it away; missing offsets are then reported as usual."""
    world = World()
    jumped(world).close()
    world.fs.remove(GAPS)
    world.fs.make_directory(GAPS)
    told = [one.detail for one in DirectoryCheck(world.fs, A).findings() if one.file == GAPS]
    assert told == ["it is not a regular file: move it away"]


def cut_inside_a_batch(world: World) -> LogManager:
    """A log that continues at 5, after a batch of 3 to 5 that was removed whole."""
    manager = opened(world)
    manager.create_topic("events", 1, {"retention.ms": "-1"})
    log = manager.log(EVENTS)
    fill(log, batches=2, records=3)
    log.truncate_to(5)
    append_values(log, b"behind")
    return manager


def test_an_end_inside_a_batch_is_no_damage() -> None:
    """A truncation took the batch whole; the next epoch begins where the log ended."""
    world = World()
    manager = cut_inside_a_batch(world)
    manager.close()
    assert damages(world) == []


def test_what_is_missing_below_the_log_start_is_no_damage() -> None:
    """They cannot be read.

    The epoch that explained a truncation was removed when the log start passed it. In a copy that
    was moved the gap is within a segment, so it is not recorded (seed 7021448).
    """
    world = World()
    manager = cut_inside_a_batch(world)
    manager.move_partition(EVENTS, B)
    log = manager.log(EVENTS)
    log.durability.commit()
    assert (segment_bases(log), log.delete_records(6)) == ([0], 6)
    manager.close()
    findings = DirectoryCheck(world.fs, [A, B]).findings()
    assert [one for one in findings if one.severity is Severity.DAMAGE] == []


@pytest.mark.parametrize("power_cut", [True, False], ids=["power cut", "kill"])
def test_a_jump_moves_with_its_log(*, power_cut: bool) -> None:
    """In the other directory it is not a loss either, and later jumps are recorded there."""
    world = World()
    manager = jumped(world)
    manager.move_partition(EVENTS, B)
    log = manager.log(EVENTS)
    for offset in (12, 13, 30):
        log.append(batch_at(offset), origin=AppendOrigin.REPLICATION)
    assert segment_bases(log) == [0, 10, 12, 30]
    log.durability.commit()
    log = restarted(world, power_cut=power_cut).log(EVENTS)
    offsets = [record.offset for record in read_records(log)]
    assert offsets == [0, 1, 2, 10, 11, 12, 13, 30]
    assert log.durability.recovery.damage is None


def test_a_snapshot_may_know_a_batch_that_compaction_took_since() -> None:
    """The producer's newest batch stays, and it is now after the snapshot."""
    compacted = Compacted(overrides={"segment.bytes": 200})  # so small that none are merged
    log = compacted.log
    for sequence, key in enumerate(("stays", "changes", "changes")):
        batch = keyed((key, "value"), producer_id=5, producer_epoch=0, base_sequence=sequence)
        log.append(batch)
        if sequence:
            log.roll()
    log.durability.flush()
    compacted.cleaner.clean_now(log)
    assert [record.offset for record in read_records(log)] == [0, 2]
    compacted.manager.close()
    check = DirectoryCheck(compacted.world.fs, DATA)
    assert [one for one in check.findings() if one.severity is not Severity.NOTE] == []
