"""What happens to a round when the log changes under it, or the disk fails."""

import errno
from collections.abc import Callable

import pytest

from engine.cleaner.cleaner import LogCleaner, run_round
from engine.config import EngineConfig
from engine.errors import StorageFull, StorageOffline
from engine.log.maintenance import CleaningAborted
from tests.support.builders import EVENTS, World
from tests.support.compaction import BY_HAND, Compacted, keyed, newest
from tests.support.kafka import kafka
from tests.support.logs import read_records, segment_bases

Step = Callable[[Compacted], object]


def filled(**overrides: object) -> Compacted:
    """Three sealed segments and an active one, all with the same key and one of their own."""
    compacted = Compacted(overrides=overrides)
    for number in range(4):
        compacted.put(("key", str(number)), (f"k{number}", "x"))
        if number < 3:
            compacted.seal()
    compacted.log.durability.commit()
    return compacted


def round_with(compacted: Compacted, step: Step, *, after_reads: int) -> None:
    """Run a round and take a step when that many chunks were read."""
    reads = 0

    def pace(size_bytes: int) -> None:
        nonlocal reads
        reads += size_bytes > 0
        if reads == after_reads:
            reads += 1
            step(compacted)

    compaction = compacted.log.maintenance.compaction()
    run_round(compaction, compacted.dirty(), BY_HAND, pace)


def leftovers(compacted: Compacted) -> list[str]:
    return [name for name in compacted.files() if name.endswith((".cleaned", ".swap"))]


AFTER_READS = pytest.mark.parametrize("after_reads", [1, 4, 6])
"""While the map is built, and while the first and the last of the sources are copied."""


@kafka("LogCleanerManagerTest.testConcurrentLogCleanupAndLogTruncation")
@AFTER_READS
def test_a_truncated_log_keeps_what_the_truncation_left(after_reads: int) -> None:
    """The round ends without effect."""
    compacted = filled()
    with pytest.raises(CleaningAborted):
        round_with(compacted, lambda it: it.log.truncate_to(2), after_reads=after_reads)
    assert compacted.offsets() == [0, 1]
    assert leftovers(compacted) == []
    compacted.log.maintenance.check_invariants()


@kafka("LogCleanerManagerTest.testConcurrentLogCleanupAndTopicDeletion")
@AFTER_READS
def test_a_deleted_log_is_left_alone(after_reads: int) -> None:
    """Its directory has another name, and the disk is not at fault."""
    compacted = filled()
    log = compacted.log
    with pytest.raises(CleaningAborted):
        round_with(
            compacted, lambda it: it.manager.delete_topic(EVENTS.topic), after_reads=after_reads
        )
    assert not compacted.manager.health.is_offline
    assert segment_bases(log) == [0, 2, 4, 6]
    compacted.world.scheduler.advance(60_000)
    assert not compacted.manager.health.is_offline


@kafka(
    "LogCleanerTest.testCleanSegmentsWithConcurrentSegmentDeletion",
    "LogCleanerManagerTest.testLogsUnderCleanupIneligibleForCompaction",
)
@AFTER_READS
def test_what_retention_removed_does_not_come_back(after_reads: int) -> None:
    """A source that is gone meanwhile ends the round, and is removed once."""
    compacted = filled()

    def remove_first(it: Compacted) -> None:
        it.log.delete_records(2)
        assert len(it.log.maintenance.run_retention()) == 1

    with pytest.raises(CleaningAborted):
        round_with(compacted, remove_first, after_reads=after_reads)
    assert segment_bases(compacted.log) == [2, 4, 6]
    assert leftovers(compacted) == []
    compacted.world.scheduler.advance(60_000)
    assert compacted.log.watermarks.log_start_offset == 2


@kafka("LogCleanerManagerTest.testDoneCleaning", "LogCleanerManagerTest.testDoneDeleting")
def test_after_each_round_the_log_is_free_for_the_next() -> None:
    """Whether it was cleaned, lost segments to retention, or the round was given up half-way."""
    compacted = filled(**{"cleanup.policy": "compact,delete"})
    with pytest.raises(CleaningAborted):
        round_with(compacted, lambda it: it.log.truncate_to(6), after_reads=4)
    assert [compacted.put(("key", "again")), compacted.clean().end_offset] == [6, 7]
    compacted.log.delete_records(7)
    assert len(compacted.log.maintenance.run_retention()) == 1
    assert [compacted.put(("key", "and again")), compacted.clean().end_offset] == [7, 8]
    assert compacted.pairs() == [("key", "and again")]


@kafka("LogManagerTest.testTopicConfigChangeStopCleaningIfCompactIsRemoved")
@AFTER_READS
def test_a_topic_that_is_no_longer_compacted_is_left_alone(after_reads: int) -> None:
    """The change is in force at once."""
    compacted = filled()

    def configure(it: Compacted) -> None:
        it.manager.update_topic(EVENTS.topic, {"cleanup.policy": "delete"})

    before = compacted.pairs()
    with pytest.raises(CleaningAborted):
        round_with(compacted, configure, after_reads=after_reads)
    assert compacted.pairs() == before


@AFTER_READS
def test_appends_and_rolls_go_on_beside_a_round(after_reads: int) -> None:
    """Appends meanwhile are neither cleaned nor lost."""
    compacted = filled()

    def append(it: Compacted) -> None:
        it.put(("key", "new"), ("k0", "new"))
        it.seal()

    round_with(compacted, append, after_reads=after_reads)
    assert newest(compacted.pairs()) == {"key": "new", "k0": "new", "k1": "x", "k2": "x", "k3": "x"}
    assert segment_bases(compacted.log) == [0, 6, 10]
    compacted.log.maintenance.check_invariants()


def test_readers_of_a_source_continue() -> None:
    """Its files are renamed at once and removed after the delay; open files stay readable."""
    compacted = filled()
    sources = compacted.log.reader.segments[:3]
    content = [bytes(source.read(0, source.size_bytes)[0]) for source in sources]
    compacted.clean()
    assert [bytes(source.read(0, source.size_bytes)[0]) for source in sources] == content
    deleted = [name for name in compacted.files() if name.endswith(".deleted")]
    assert {name[:20] for name in deleted} == {f"{base:020d}" for base in (0, 2, 4, 6)}
    compacted.world.scheduler.advance(60_000)
    assert not [name for name in compacted.files() if name.endswith(".deleted")]
    assert [bytes(source.read(0, source.size_bytes)[0]) for source in sources] == content


@kafka("UnifiedLogTest.testCompactionDeletesProducerStateSnapshots")
def test_snapshots_of_segments_that_are_gone_go_too() -> None:
    """Those of the output's base and of the active segment stay."""
    compacted = filled()
    compacted.clean()
    snapshots = [name for name in compacted.files() if name.endswith(".snapshot")]
    assert snapshots == ["00000000000000000008.snapshot"]


def test_the_snapshot_of_an_output_stays() -> None:
    """Where one run of segments becomes several, each but the first has one to begin with."""
    compacted = filled(**{"segment.bytes": 200})
    compacted.clean()
    assert segment_bases(compacted.log) == [0, 4, 8]
    snapshots = [int(name[:20]) for name in compacted.files() if name.endswith(".snapshot")]
    assert snapshots == [4, 8]


@pytest.mark.parametrize("operation", ["create", "append", "sync"])
def test_a_full_disk_ends_the_round_and_nothing_else(operation: str) -> None:
    """The written files are removed again, and the directory stays online."""
    compacted = filled()
    before = compacted.pairs()
    compacted.seal()
    ending = ".timeindex.cleaned" if operation == "create" else ".log.cleaned"
    compacted.world.disk.fail(operation, error=errno.ENOSPC, path_end=ending)
    with pytest.raises(StorageFull):
        compacted.cleaner.clean_now(compacted.log)
    assert not compacted.manager.health.is_offline
    assert leftovers(compacted) == []
    assert compacted.pairs() == before
    compacted.cleaner.clean_now(compacted.log)
    assert newest(compacted.pairs()) == newest(before)


@pytest.mark.parametrize(
    ("operation", "path_end"),
    [
        ("append", ".log.cleaned"),
        ("sync", ".log.cleaned"),
        ("rename", ".log.cleaned"),
        ("rename", ".log.swap"),
    ],
)
def test_a_failing_disk_takes_the_directory_offline(operation: str, path_end: str) -> None:
    """And a restart finds the sources or the output, never half of it."""
    compacted = filled()
    compacted.seal()
    before = newest(compacted.pairs())
    compacted.world.disk.fail(operation, path_end=path_end)
    with pytest.raises(StorageOffline):
        compacted.cleaner.clean_now(compacted.log)
    assert compacted.manager.health.is_offline
    compacted.crash(power_cut=True)
    assert newest(compacted.pairs()) == before
    assert leftovers(compacted) == []


def test_leftovers_of_an_earlier_attempt_are_replaced() -> None:
    """Files of a round that could not remove them are replaced."""
    compacted = filled()
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        path = compacted.log.directory / f"{0:020d}{suffix}.cleaned"
        with compacted.world.fs.open(path, create=True) as file:
            file.append(b"left behind")
    before = newest(compacted.pairs())
    compacted.clean()
    assert newest(compacted.pairs()) == before
    assert compacted.aborted() == []


@pytest.mark.parametrize("by_restart", [True, False])
def test_what_a_default_had_compacted_is_whole_under_another(*, by_restart: bool) -> None:
    """Offsets are missing after segments, which is not treated as a loss after a crash.

    A start removed everything after the first of them once the default was `delete`.
    """
    small = {"segment.bytes": "300", "segment.index.bytes": "1200", "retention.ms": "-1"}
    policies = ["compact"] if by_restart else ["delete", "compact"]
    world = World()
    for policy in policies:
        defaults = {**small, "cleanup.policy": policy}
        world.config = EngineConfig(default_topic_config=defaults)
        manager = world.open_manager()
        manager.create_topic(EVENTS.topic, 1, {})
        if policy == "delete":
            manager.close()
    log = manager.log(EVENTS)
    for number in range(4):
        for pair in ((f"k{number}", "x" * 60), ("again", "and again")):
            log.append(keyed(pair))
        log.roll()
    log.durability.commit()
    cleaner = LogCleaner(manager, clock=world.clock, config=BY_HAND, recorder=world.recorder)
    cleaner.start()
    cleaner.clean_now(log)
    before = read_records(log)
    assert [record.offset for record in before] == [0, 2, 4, 6, 7]
    world.restart(power_cut=False)
    world.config = EngineConfig(default_topic_config={**small, "cleanup.policy": "delete"})
    log = world.open_manager().log(EVENTS)
    assert read_records(log) == before
    assert (log.durability.recovery.damage, log.durability.recovery.removed_segments) == (None, 0)
