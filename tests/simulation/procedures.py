"""Every procedure that changes a data directory, each on a scene that gives it something to do."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from engine.records.header import Codec
from engine.types import TopicPartition
from tests.simulation.simulation import Simulation, TopicTruth
from tests.simulation.steps import checkpoint, clean, remove_topic, truncate_to
from tests.simulation.trouble import Ending, Kind, Trouble
from tests.support.driven_log import DrivenLog

Procedure = Callable[[Simulation, Random], None]

PROCEDURES: dict[str, Procedure] = {}

KEPT = TopicPartition("kept", 0)
COMPACTED = TopicPartition("compacted", 0)
NO_DELETION = {"cleanup.policy": "delete", "retention.ms": "-1"}
BATCHES_OF_SCENE = 3


def procedure(work: Procedure) -> Procedure:
    PROCEDURES[work.__name__.replace("_", " ")] = work
    return work


def new_scene() -> Simulation:
    """Two directories, two logs with sealed and unsealed segments, some of it uncommitted."""
    simulation = Simulation(0, directories=2)
    simulation.trouble_at_starts = lambda _random, _chance: Trouble.none()
    for log, overrides in ((KEPT, NO_DELETION), (COMPACTED, {"cleanup.policy": "compact"})):
        simulation.manager.create_topic(log.topic, 1, overrides)
        simulation.topics[log.topic] = TopicTruth([dict(overrides)], [simulation.drive(log)])
        driven = simulation.logs[log]
        fill(driven)
        driven.roll()
        driven.commit()
        fill(driven)
        driven.flush()
    checkpoint(simulation, Random(0))
    for driven in simulation.logs.values():
        driven.roll()
        fill(driven)
        driven.commit()
        driven.append(2)
    return simulation


def fill(driven: DrivenLog) -> None:
    """Append a plain batch, one of a producer, and a transaction that is aborted."""
    driven.append(3, codec=Codec.LZ4)
    driven.append_of_producer(1, 2)
    driven.append_of_producer(3, 2)
    driven.end_transaction(3, commits=False, fences=False)


def logs_of(simulation: Simulation) -> tuple[DrivenLog, DrivenLog]:
    logs = simulation.logs
    return logs[KEPT], logs[COMPACTED]


@procedure
def append(simulation: Simulation, random: Random) -> None:
    """Append until it rolls: every kind of batch, and a marker that an index must name."""
    kept, _ = logs_of(simulation)
    for _ in range(BATCHES_OF_SCENE):
        fill(kept)
        kept.append_several([8, 9])


@procedure
def commit(simulation: Simulation, random: Random) -> None:
    kept, _ = logs_of(simulation)
    kept.roll()
    kept.append(1)
    kept.commit()


@procedure
def flush(simulation: Simulation, random: Random) -> None:
    kept, _ = logs_of(simulation)
    kept.roll()
    kept.append(1)
    kept.flush()


@procedure
def roll(simulation: Simulation, random: Random) -> None:
    """Seal a segment, begin another, and flush both in the background; a snapshot is taken."""
    kept, _ = logs_of(simulation)
    kept.roll()
    let_background_work(simulation, 0)


@procedure
def write_checkpoints(simulation: Simulation, random: Random) -> None:
    checkpoint(simulation, random)


@procedure
def truncate_inside_a_segment(simulation: Simulation, random: Random) -> None:
    truncate(simulation, back=4)


@procedure
def truncate_whole_segments(simulation: Simulation, random: Random) -> None:
    truncate(simulation, back=15)


def truncate(simulation: Simulation, back: int) -> None:
    kept, _ = logs_of(simulation)
    truncate_to(simulation, kept, kept.model.end - back)


@procedure
def delete_segments(simulation: Simulation, random: Random) -> None:
    """Raise the log start into the last segment, remove all below it, and later its files."""
    kept, _ = logs_of(simulation)
    target = kept.model.high_watermark - 1
    assert kept.log.delete_records(target) == target
    kept.model.log_start = target
    checkpoint(simulation, random)
    kept.run_retention()
    let_background_work(simulation, 120_000)


@procedure
def delete_topic(simulation: Simulation, random: Random) -> None:
    """Rename, forget, and later remove the files."""
    remove_topic(simulation, KEPT.topic)
    let_background_work(simulation, 120_000)


@procedure
def create_topic(simulation: Simulation, random: Random) -> None:
    overrides = {"retention.ms": "1"}
    simulation.topics["new"] = TopicTruth([overrides], [], is_hidden=True, more_partitions=3)
    simulation.manager.create_topic("new", 3, overrides)
    logs = [simulation.drive(TopicPartition("new", number)) for number in range(3)]
    simulation.topics["new"] = TopicTruth([overrides], logs)


@procedure
def change_a_topic(simulation: Simulation, random: Random) -> None:
    """Another configuration and one more partition."""
    truth = simulation.topics[KEPT.topic]
    after = {**truth.configs[0], "segment.bytes": "900"}
    truth.configs.append(after)
    truth.more_partitions = 1
    simulation.manager.update_topic(KEPT.topic, {"segment.bytes": "900"}, 2)
    logs = [*truth.logs, simulation.drive(TopicPartition(KEPT.topic, 1))]
    simulation.topics[KEPT.topic] = TopicTruth([after], logs)


@procedure
def compact(simulation: Simulation, random: Random) -> None:
    """Rewrite, swap, and later remove the sources."""
    _, compacted = logs_of(simulation)
    clean(simulation, compacted)
    let_background_work(simulation, 120_000)


@procedure
def move(simulation: Simulation, random: Random) -> None:
    """Copy, swap names between two directories, and later remove the original."""
    kept, _ = logs_of(simulation)
    here = kept.log.directory.parent
    (there,) = (path for path in simulation.directories if path != here)
    end = kept.model.end
    try:
        simulation.manager.move_partition(KEPT, there)
    finally:
        kept.see_commits()  # it commits, and may fail for lack of space after its last step
    kept.was_moved(end)
    let_background_work(simulation, 120_000)


@procedure
def allocate_producers(simulation: Simulation, random: Random) -> None:
    for _ in range(2):
        producer_id, _ = simulation.manager.allocate_producer()
        assert producer_id not in simulation.producer_ids
        simulation.producer_ids.add(producer_id)


@procedure
def shut_down(simulation: Simulation, random: Random) -> None:
    simulation.stop_and_start(random)


@procedure
def start_after_a_stop(simulation: Simulation, random: Random) -> None:
    """Only the start may be interrupted."""
    trouble, simulation.trouble = simulation.trouble, Trouble.none()
    cut_starts(simulation, trouble)
    simulation.disk.forget_faults()
    simulation.stop_and_start(random)


@procedure
def recover_after_a_crash(simulation: Simulation, random: Random) -> None:
    cut_starts(simulation, simulation.trouble)
    simulation.restart(random, Trouble.none())


@procedure
def recover_after_a_power_cut(simulation: Simulation, random: Random) -> None:
    cut_starts(simulation, simulation.trouble)
    simulation.restart(random, Trouble(Kind.NOTHING, 1, 5, Ending.POWER_CUT))


def cut_starts(simulation: Simulation, *troubles: Trouble) -> None:
    """Apply these troubles to the next starts, and the earlier ones to those after them."""
    coming, before = iter(troubles), simulation.trouble_at_starts
    simulation.trouble_at_starts = lambda random, chance: (
        next(coming, None) or before(random, chance)
    )


def let_background_work(simulation: Simulation, milliseconds: int) -> None:
    try:
        simulation.scheduler.advance(milliseconds)
    finally:
        for driven in simulation.logs.values():
            driven.see_commits()
