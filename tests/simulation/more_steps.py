"""Steps of lives whose seeds are from `WIDE_FROM` on: the rest of the engine's API.

Lives of smaller seeds do not use them, so that a seed that once found a fault replays the same
life.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from engine.fs import names
from tests.simulation import appends, looks
from tests.simulation.simulation import Simulation
from tests.simulation.steps import (
    MOST_TOPICS,
    POLICIES,
    WEIGHTS,
    WORKS,
    Work,
    WorkOnLog,
    change,
    choosing_a_log,
    create,
)
from tests.simulation.trouble import Kind, Trouble
from tests.support.driven_log import DrivenLog

ALL_WORKS: dict[str, Work] = dict(WORKS)
ALL_WEIGHTS: dict[str, int] = dict(WEIGHTS)
SMALL_INDEXES = ("12", "24", "48", "240", "1200")
INTERVALS = ("0", "100", "1000")
OUR_FILES = (names.TOPICS_FILE, names.DIRECTORIES_FILE, names.PRODUCER_ID_FILE)


def step(weight: int) -> Callable[[Work], Work]:
    """Have the function happen that often."""

    def add(work: Work) -> Work:
        ALL_WORKS[work.__name__], ALL_WEIGHTS[work.__name__] = work, weight
        return work

    return add


def on_a_log(weight: int) -> Callable[[WorkOnLog], Work]:
    """Have the function happen that often to some log, if there is one."""
    return lambda work: step(weight)(choosing_a_log(work))


def untroubled(random: Random, chance: float) -> Trouble:
    """Let a start go well."""
    return Trouble.none()


# -- topics --------------------------------------------------------------------------------------


@step(3)
def create_topic_with_small_indexes(simulation: Simulation, random: Random) -> None:
    name = random.choice("xyz")
    if name in simulation.visible or len(simulation.visible) >= MOST_TOPICS:
        return
    overrides = {
        "cleanup.policy": random.choice(POLICIES),
        "index.interval.bytes": random.choice(INTERVALS),
        "segment.index.bytes": random.choice(SMALL_INDEXES),
    }
    create(simulation, name, random.randint(1, 2), overrides)


@step(3)
def change_indexes(simulation: Simulation, random: Random) -> None:
    """Existing segments keep their indexes; recovery rebuilds some."""
    if not simulation.visible:
        return
    name = random.choice(sorted(simulation.visible))
    changes = {
        "index.interval.bytes": random.choice(INTERVALS),
        "segment.index.bytes": random.choice(SMALL_INDEXES),
    }
    change(simulation, name, changes, len(simulation.topics[name].logs))


@step(1)
def lose_our_files(simulation: Simulation, random: Random) -> None:
    """Start in directories as a broker leaves them: topics are adopted, without configuration."""
    are_doubtful = any(one.is_hidden or one.may_be_gone for one in simulation.topics.values())
    if are_doubtful or simulation.trouble.kind is not Kind.NOTHING:
        return
    simulation.stop()
    for driven in simulation.logs.values():
        driven.was_stopped()
    for directory in simulation.directories:
        for name in OUR_FILES:
            simulation.disk.remove(directory / name, missing_ok=True)
        simulation.disk.sync_directory(directory)
    before = {name: dict(topic.configs[0]) for name, topic in simulation.topics.items()}
    for topic in simulation.topics.values():
        topic.configs.append({})
        for driven in topic.logs:
            driven.was_compacted = True  # as far as is known
    simulation.producer_ids.clear()
    simulation.disk.restart(power_cut=random.random() < 0.5)
    # Not interrupted: two starts, each without another directory, would make two sets of them.
    drawn, simulation.trouble_at_starts = simulation.trouble_at_starts, untroubled
    simulation.start(random, simulation.least_ends(), has_lost=False)
    simulation.trouble_at_starts = drawn
    for name, overrides in before.items():
        if name in simulation.visible:
            change(simulation, name, overrides, len(simulation.topics[name].logs))


# -- records -------------------------------------------------------------------------------------


@on_a_log(8)
def replicate(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    appends.replicate(driven, random)


@on_a_log(2)
def append_on_condition(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    appends.append_on_condition(driven, random.randint(1, 3))


@on_a_log(2)
def append_at_once(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    appends.append_at_once(driven, random.randint(1, 3))


@on_a_log(12)
def append_without_waking(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    """As many small appends are made that share one round, which may run inline."""
    directory = driven.log.directory.parent
    beside = [one for one in simulation.logs.values() if one.log.directory.parent == directory]
    for one in random.sample(beside, random.randint(1, len(beside))):
        one.write(one.build(1), wakes=False)
    simulation.threads.commit_soon()


# -- readers -------------------------------------------------------------------------------------


@on_a_log(5)
def look_at_everything(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    looks.check_everything(driven, random)
    if not simulation.is_offline:
        looks.check_state(simulation, driven)


# -- maintenance ---------------------------------------------------------------------------------


@step(3)
def pass_of_the_cleaner(simulation: Simulation, random: Random) -> None:
    """The dirtiest log is compacted, if one is due, and retention runs on the compacted logs."""
    assert not simulation.cleaner.uncleanable
    try:
        simulation.cleaner.run_pass()
    finally:
        for driven in simulation.logs.values():
            if not driven.log.config.is_compacted:
                continue
            if driven.log.durability.health.is_offline:
                driven.may_have_removed()
            else:
                with simulation.disk.looked_at():
                    driven.see_commits()
                    driven.see_removals()
                    driven.adopt_cleaned()


@on_a_log(2)
def expire_producers(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    """Those of this month stay."""
    driven.log.producers.expire()
