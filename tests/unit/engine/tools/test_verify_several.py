"""Checks and repairs of a log that has several data directories."""

from dataclasses import replace

import pytest

from engine.checkpoint.kafka_files import CleanShutdownMarker
from engine.config import EngineConfig
from engine.errors import DirectoryLocked
from engine.fs import names
from engine.fs.directories import DirectoryLock
from engine.tools.findings import Finding, Severity
from engine.tools.repair import carry_out, plan_repair
from engine.tools.verify import DirectoryCheck
from tests.support.builders import SMALL_CONFIG, World
from tests.support.damage import one_bit_flipped, reversed_bytes, rewrite
from tests.unit.engine.manager.test_directories import (
    OTHER,
    A,
    B,
    C,
    assert_serves,
    opened,
    spread,
)

BOTH = (A, B)


@pytest.fixture
def world() -> World:
    """Two directories with one partition each, of three committed records, closed cleanly."""
    world, manager = spread()
    manager.close()
    return world


def problems(world: World, config: EngineConfig | None = None) -> list[Finding]:
    return [one for one in DirectoryCheck(world.fs, BOTH, config).findings() if one.is_problem]


def damage(world: World, name: str) -> None:
    for path in BOTH:
        rewrite(world.fs, path / name, b"{")


def test_sound_directories_have_no_problems(world: World) -> None:
    """Both partitions are counted, and neither is missing in the other directory."""
    check = DirectoryCheck(world.fs, BOTH)
    assert [one for one in check.findings() if one.is_problem] == []
    assert check.checked.partitions == 2


def test_a_partition_in_two_directories_is_a_refusal(world: World) -> None:
    """As a start refuses it, both are named."""
    world.fs.make_directory(B / "events-0")
    (finding,) = (one for one in problems(world) if one.severity is Severity.REFUSED)
    assert finding.file == B / "events-0"
    assert "/a also holds this partition" in finding.detail


def test_one_copy_of_the_topics_is_enough(world: World) -> None:
    """Opening rebuilds a damaged one; with all of them damaged an operator has to act."""
    rewrite(world.fs, B / names.TOPICS_FILE, b"{")
    (finding,) = problems(world)
    assert (finding.severity, finding.file) == (Severity.DERIVED, B / names.TOPICS_FILE)
    carry_out(world.fs, BOTH, plan_repair(world.fs, BOTH), SMALL_CONFIG)
    assert problems(world) == []
    damage(world, names.TOPICS_FILE)
    assert {one.severity for one in problems(world)} == {Severity.REFUSED}


def test_one_file_of_who_belongs_together_is_enough(world: World) -> None:
    """A repair removes a damaged one, which is made from the other; two need a person."""
    rewrite(world.fs, B / names.DIRECTORIES_FILE, b"{")
    (finding,) = problems(world)
    assert (finding.severity, finding.file) == (Severity.DERIVED, B / names.DIRECTORIES_FILE)
    carry_out(world.fs, BOTH, plan_repair(world.fs, BOTH), SMALL_CONFIG)
    assert problems(world) == []
    damage(world, names.DIRECTORIES_FILE)
    assert {one.severity for one in problems(world)} == {Severity.REFUSED}


def test_a_directory_in_the_place_of_that_file_is_told_once(world: World) -> None:
    """A person has to move it away."""
    world.fs.remove(A / names.DIRECTORIES_FILE)
    world.fs.make_directory(A / names.DIRECTORIES_FILE)
    (finding,) = problems(world)
    assert (finding.severity, finding.file) == (Severity.REFUSED, A / names.DIRECTORIES_FILE)


def test_a_copy_that_was_being_moved_is_a_note(world: World) -> None:
    """Opening decides what becomes of it."""
    name = "events-1.00112233445566778899aabbccddeeff-future"
    world.fs.make_directory(A / name)
    assert problems(world) == []
    notes = [one.file for one in DirectoryCheck(world.fs, BOTH).findings()]
    assert A / name in notes


def test_a_topic_that_was_compacted_may_have_gaps(world: World) -> None:
    """By its own configuration, by the defaults of the service, or by an earlier one."""
    manager = opened(world)
    manager.update_topic("events", {"cleanup.policy": "compact"})
    manager.update_topic("events", {"cleanup.policy": None})
    log = manager.log(OTHER)
    log.roll()
    manager.close()
    world.fs.remove(B / "events-1" / "00000000000000000000.log")
    assert not [one for one in problems(world) if "are missing" in one.detail]
    compacted = replace(
        SMALL_CONFIG,
        default_topic_config={**SMALL_CONFIG.default_topic_config, "cleanup.policy": "compact"},
    )
    assert not [one for one in problems(world, compacted) if "are missing" in one.detail]


def test_a_repair_covers_every_directory_and_cuts_at_the_damage(world: World) -> None:
    """The other directory is left as it was, with its marker until it is opened."""
    log_path = B / "events-1" / "00000000000000000000.log"
    rewrite(world.fs, log_path, one_bit_flipped(world.fs.read_bytes(log_path)))
    index_path = A / "events-0" / "00000000000000000000.timeindex"
    rewrite(world.fs, index_path, reversed_bytes(world.fs.read_bytes(index_path)))
    plan = plan_repair(world.fs, BOTH, cut=True)
    recovered = carry_out(world.fs, BOTH, plan, SMALL_CONFIG).recovered
    assert recovered[OTHER].truncated_bytes > 0
    assert problems(world) == []
    assert all(CleanShutdownMarker(world.fs, path).exists() for path in BOTH)
    manager = opened(world)
    assert_serves(manager.log(OTHER), records=0)


def test_no_directory_is_repaired_while_one_is_in_use(world: World) -> None:
    """Nothing is removed, in the others neither."""
    index_path = A / "events-0" / "00000000000000000000.timeindex"
    rewrite(world.fs, index_path, reversed_bytes(world.fs.read_bytes(index_path)))
    plan = plan_repair(world.fs, BOTH)
    with DirectoryLock(world.fs, B), pytest.raises(DirectoryLocked):
        carry_out(world.fs, BOTH, plan, SMALL_CONFIG)
    assert world.fs.exists(index_path)


def test_a_new_directory_may_join(world: World) -> None:
    """A check of the directories for the next start finds no fault in it."""
    opened(world, C).close()
    findings = list(DirectoryCheck(world.fs, (*BOTH, C)).findings())
    assert not [one for one in findings if one.is_problem]
