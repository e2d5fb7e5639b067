"""Everything that can happen to an engine, each with how often it does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from engine.background.mover import MoveState
from engine.errors import Overloaded, PolicyViolation, StorageFull
from engine.records.header import Codec
from engine.types import FetchIsolation, TopicPartition
from tests.simulation.simulation import Simulation, TopicTruth
from tests.simulation.trouble import Ending, Kind, Trouble
from tests.support.driven_log import IDEMPOTENT, TRANSACTIONAL, DrivenLog
from tests.support.log_checks import check_look_ups, check_read
from tests.support.logs import ALL_BYTES

Work = Callable[[Simulation, Random], None]
WorkOnLog = Callable[[Simulation, DrivenLog, Random], None]

WORKS: dict[str, Work] = {}
WEIGHTS: dict[str, int] = {}
PRODUCERS = (*IDEMPOTENT, *TRANSACTIONAL)
MOST_TOPICS = 3
POLICIES = ("delete", "delete", "compact", "compact,delete")


def step(weight: int) -> Callable[[Work], Work]:
    """Have the function happen that often."""

    def add(work: Work) -> Work:
        WORKS[work.__name__] = work
        WEIGHTS[work.__name__] = weight
        return work

    return add


def on_a_log(weight: int) -> Callable[[WorkOnLog], Work]:
    """Have the function happen that often to some log, if there is one."""

    def add(work: WorkOnLog) -> Work:
        return step(weight)(choosing_a_log(work))

    return add


def choosing_a_log(work: WorkOnLog) -> Work:
    """Return the same, done to some log, if there is one."""

    def choose(simulation: Simulation, random: Random) -> None:
        logs = simulation.logs
        if not logs:
            create_topic(simulation, random)
            return
        log = random.choice(sorted(logs))
        simulation.told.append(f"      {log} {dict(logs[log].facts())}")
        work(simulation, logs[log], random)

    choose.__name__ = work.__name__
    return choose


# -- topics --------------------------------------------------------------------------------------


@step(3)
def create_topic(simulation: Simulation, random: Random) -> None:
    name = random.choice("xyz")
    if name in simulation.visible or len(simulation.visible) >= MOST_TOPICS:
        return
    overrides = {"cleanup.policy": random.choice(POLICIES)}
    if random.random() < 0.3:
        overrides["retention.bytes"] = "9000"
    if random.random() < 0.3:
        overrides["preallocate"] = "true"
    create(simulation, name, random.randint(1, 2), overrides)


def create(simulation: Simulation, name: str, count: int, overrides: dict[str, str]) -> None:
    before = simulation.topics.get(name, TopicTruth([], []))  # on a full disk no trace is removed
    simulation.topics[name] = TopicTruth(
        [*before.configs, overrides],
        [],
        is_hidden=True,
        more_partitions=max(before.more_partitions, count),
    )
    topic, is_new = simulation.manager.create_topic(name, count, overrides)
    assert is_new
    logs = [simulation.drive(TopicPartition(name, number)) for number in range(count)]
    simulation.topics[name] = TopicTruth([dict(topic.overrides)], logs)


@step(1)
def delete_topic(simulation: Simulation, random: Random) -> None:
    names = sorted(simulation.visible)
    if not names:
        return
    name = random.choice(names)
    remove_topic(simulation, name)


def remove_topic(simulation: Simulation, name: str) -> None:
    truth = simulation.topics[name]
    truth.may_be_gone = True
    for log in [log for log in simulation.threads.planned if log.topic == name]:
        del simulation.threads.planned[log]
    try:
        simulation.manager.delete_topic(name)
    except BaseException:
        truth.is_hidden = name not in simulation.manager.topics()
        raise
    del simulation.topics[name]


@step(2)
def change_config(simulation: Simulation, random: Random) -> None:
    names = sorted(simulation.visible)
    if not names:
        return
    name = random.choice(names)
    truth = simulation.topics[name]
    changes = {
        "segment.bytes": str(random.choice([800, 2_000, 5_000])),
        "retention.ms": str(random.choice([60_000, 600_000, -1])),
    }
    if random.random() < 0.3 and not truth.logs[0].was_compacted:
        changes["cleanup.policy"] = "compact,delete"
        for driven in truth.logs:
            driven.was_compacted = True
    partitions = len(truth.logs) + (random.random() < 0.3 and len(truth.logs) < 3)
    change(simulation, name, changes, partitions)


def change(simulation: Simulation, name: str, changes: dict[str, str], partitions: int) -> None:
    truth = simulation.topics[name]
    before = truth.configs[0]
    truth.configs.append(dict(sorted({**before, **changes}.items())))
    refused = truth.more_partitions  # of an earlier change that found no space to be undone
    truth.more_partitions = max(refused, partitions - len(truth.logs))
    try:
        topic = simulation.manager.update_topic(name, changes, partitions)
    finally:
        for driven in truth.logs:
            driven.see_commits()  # one that is to be compacted is committed first
    for number in range(len(truth.logs), partitions):
        truth.logs.append(simulation.drive(TopicPartition(name, number)))
    simulation.topics[name] = TopicTruth([dict(topic.overrides)], truth.logs)


@step(1)
def allocate_producer(simulation: Simulation, random: Random) -> None:
    producer_id, _ = simulation.manager.allocate_producer()
    assert producer_id not in simulation.producer_ids, "an id was given out twice"
    simulation.producer_ids.add(producer_id)


@on_a_log(4)
def ask_for_a_move(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    """It is carried out later, by this process or another; one that leads elsewhere is refused."""
    log, target = driven.log.topic_partition, random.choice(simulation.directories)
    planned, known = simulation.manager.unfinished_moves(), simulation.runtime.mover.report(log)
    if planned.get(log, target) != target and known is not None and not known.is_over:
        with pytest.raises(PolicyViolation):
            simulation.runtime.mover.start(log, target)
        return
    report = simulation.runtime.mover.start(log, target)
    if report.state is not MoveState.DONE:
        simulation.threads.planned[log] = target


@step(4)
def carry_out_a_move(simulation: Simulation, random: Random) -> None:
    simulation.threads.move_next()


# -- records -------------------------------------------------------------------------------------


@on_a_log(10)
def append(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    driven.append(random.randint(1, 12), codec=random.choice(list(Codec)))


@on_a_log(4)
def append_several(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    driven.append_several([random.randint(1, 4) for _ in range(random.randint(2, 4))])


@on_a_log(9)
def produce(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    for _ in range(random.randint(1, 3)):
        counts = random.choice([[random.randint(1, 6)], [1, 2], [1] * 5])
        driven.append_of_producer(random.choice(PRODUCERS), *counts)


@on_a_log(7)
def transact(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    producer_id = random.choice(TRANSACTIONAL)
    if random.random() < 0.5:
        driven.append_of_producer(producer_id, random.randint(1, 3))
    if random.random() < 0.3:
        driven.log.roll()
    driven.end_transaction(producer_id, commits=random.random() < 0.5, fences=random.random() < 0.3)


@on_a_log(2)
def begin_epoch(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    driven.begin_epoch(random.choice(PRODUCERS), random.randint(1, 3))


@on_a_log(5)
def retry(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    for producer_id in PRODUCERS:
        driven.retry(producer_id, random.randint(1, 5), count=random.randint(1, 5))


@on_a_log(1)
def be_refused(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    driven.be_refused(random.choice(PRODUCERS), random.randint(1, 5))


@on_a_log(5)
def read(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    model = driven.model
    for _ in range(4):
        check_read(
            driven.log,
            model,
            random.randint(model.log_start, model.end),
            max_bytes=random.choice([0, 1, 100, 300, 1_000, 5_000, ALL_BYTES]),
            isolation=random.choice(list(FetchIsolation)),
            end_offset=random.choice([None, random.randint(model.log_start, model.end + 2)]),
        )


@on_a_log(1)
def look_up(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    check_look_ups(driven.log, driven.model, step=1)


# -- maintenance ---------------------------------------------------------------------------------


@on_a_log(9)
def commit(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    with simulation.interruptible(driven):
        driven.commit()


@on_a_log(6)
def let_the_committer_work(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    with simulation.interruptible(driven):
        simulation.threads.commit_round()


@on_a_log(2)
def scrub(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    with simulation.interruptible(driven):
        simulation.threads.scrub()


@on_a_log(4)
def flush(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    with simulation.interruptible(driven):
        driven.flush()


@on_a_log(4)
def roll(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    driven.roll()


@step(3)
def checkpoint(simulation: Simulation, random: Random) -> None:
    simulation.manager.checkpoint()
    for driven in simulation.logs.values():
        if not driven.log.durability.health.is_offline:  # its directory was left in place
            driven.saved_log_start = driven.model.log_start


@step(5)
def pass_time(simulation: Simulation, random: Random) -> None:
    try:
        simulation.scheduler.advance(random.choice([1, 1_000, 60_000, 300_000]))
    finally:
        for driven in simulation.logs.values():
            driven.see_commits()  # rolls flush in the background
            driven.see_removals()


@step(1)
def set_clock(simulation: Simulation, random: Random) -> None:
    """An operator, or NTP, sets the wall clock forwards or back."""
    clock = simulation.clock
    clock.set_wall(clock.now_ms() + random.choice([-7_200_000, -5_000, 5_000, 1_800_000]))


@on_a_log(4)
def retention(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    driven.run_retention()


@on_a_log(3)
def delete_records(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    model = driven.model
    if model.high_watermark > model.log_start:
        target = random.randint(model.log_start, model.high_watermark)
        driven.delete_records(target, simulation.manager.delete_records)


@on_a_log(3)
def truncate(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    truncate_to(simulation, driven, random.randint(0, driven.model.end + 1))


def truncate_to(simulation: Simulation, driven: DrivenLog, offset: int) -> None:
    driven.will_be_cut(offset)
    try:
        end = simulation.manager.truncate(driven.log, offset)
    except (StorageFull, Overloaded):
        if not simulation.is_offline:
            driven.may_have_been_cut(offset)
        raise
    finally:
        simulation.threads.waiting.pop(driven.log, None)  # the service answers them before it cuts
    driven.was_cut(offset, end)
    if simulation.trouble.kind is Kind.NOTHING:  # otherwise they may have lacked space or files
        checkpoints_were_written(simulation, driven)


def checkpoints_were_written(simulation: Simulation, driven: DrivenLog) -> None:
    """A truncation writes those of all logs in its directory."""
    directory = driven.log.directory.parent
    for other in simulation.logs.values():
        if other.log.directory.parent == directory and not other.log.durability.health.is_offline:
            other.saved_log_start = other.model.log_start


@on_a_log(6)
def compact(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    if not driven.log.config.is_compacted:
        return
    if random.random() < 0.7:
        driven.log.roll()
        driven.commit()
    checkpoint(simulation, random)
    clean(simulation, driven)


def clean(simulation: Simulation, driven: DrivenLog) -> None:
    try:
        with simulation.interruptible(driven):
            report = simulation.cleaner.clean_now(driven.log)
    except (StorageFull, Overloaded):
        if not simulation.is_offline:
            with simulation.disk.looked_at():
                driven.adopt_cleaned()
        raise
    with simulation.disk.looked_at():
        driven.was_compacted_as(report)


# -- the machine ---------------------------------------------------------------------------------


@step(2)
def write_back(simulation: Simulation, random: Random) -> None:
    """The kernel writes some pages."""
    simulation.disk.write_back(random)


@step(2)
def stop_and_start(simulation: Simulation, random: Random) -> None:
    simulation.stop_and_start(random)


@step(4)
def crash(simulation: Simulation, random: Random) -> None:
    ending = random.choice(list(Ending))
    simulation.told.append(f"      {ending.value}")
    simulation.restart(random, Trouble(Kind.NOTHING, 1, 5, ending))
