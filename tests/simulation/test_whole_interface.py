"""What of the engine's interface no simulated life uses, and why: the list is held to be true."""

from __future__ import annotations

import inspect
import sys
from random import Random
from types import CodeType, FrameType
from typing import Any

from engine.background.committer import Committer
from engine.background.mover import PartitionMover
from engine.background.scrubber import Scrubber
from engine.cleaner.cleaner import LogCleaner
from engine.log.durability import Durability
from engine.log.log import Log, LogProducers
from engine.log.maintenance import Maintenance
from engine.log.read.reader import LogReader
from engine.manager.manager import LogManager
from engine.runtime import Runtime
from tests.simulation.determinism import deterministic
from tests.simulation.history import Step
from tests.simulation.more_steps import ALL_WORKS
from tests.simulation.simulation import WIDE_FROM, Simulation

INTERFACE = (
    Runtime,
    LogManager,
    Log,
    LogReader,
    LogProducers,
    Durability,
    Maintenance,
    Committer,
    PartitionMover,
    LogCleaner,
    Scrubber,
)
LIVES = 12

BY_MANAGER = "the manager calls it, in steps that do"
BY_RUNTIME = "the runtime calls it at each start and stop"
BY_ARCHIVE = "the archive calls it, in lives of its own: tests.simulation.archive_lives"
NO_THREADS = "a life has one thread: `run_round`, `run_pass` and `move_next` do its work"
NOT_USED = {
    "Committer.start": NO_THREADS,
    "Committer.stop": BY_RUNTIME,
    "Log.close": BY_MANAGER,
    "Log.delete_records": "through the manager, which writes the log start down first",
    "Log.open": BY_MANAGER,
    "Log.truncate_to": "through the manager, with no checkpoint ahead of it",
    "LogCleaner.preview": "it only looks at what `clean_now` looks at first",
    "LogCleaner.start": BY_RUNTIME,
    "LogCleaner.stop": BY_RUNTIME,
    "LogProducers.forget_idle": "a data directory that remembers too many producers calls it",
    "LogManager.producer_ids_end": BY_ARCHIVE,
    "LogManager.release": BY_ARCHIVE,
    "LogManager.restore_topic": BY_ARCHIVE,
    "LogReader.committed": BY_ARCHIVE,
    "LogReader.local_log_start_offset": BY_ARCHIVE,
    "Maintenance.begin_in_archive": BY_ARCHIVE,
    "Maintenance.due_for_release": BY_ARCHIVE,
    "Maintenance.release": BY_ARCHIVE,
    "Maintenance.show_archived": BY_ARCHIVE,
    "LogReader.copy_file": BY_ARCHIVE,
    "LogReader.content_version": "a page's tag in HTTP is made from it",
    "LogReader.fetch": "a move calls it",
    "LogReader.is_damaged": "a review of what is known to be damaged asks it",
    "LogReader.newest_timestamp": "a list of topics shows it",
    "LogReader.note_damage": "a scrub calls it",
    "Durability.is_commit_small": "a round on the caller's thread asks it",
    "Durability.begin_commit": "a round of the committer calls it",
    "Durability.end_commit": "a round of the committer calls it",
    "Durability.flush_soon": "rolls and retention call it",
    "Durability.try_to_flush": "a truncation calls it",
    "Maintenance.close_handles": BY_MANAGER,
    "Maintenance.compaction": "the cleaner calls it",
    "Maintenance.held_by_time": "retention's answer names it",
    "Maintenance.is_removing": "the checkpoints ask, beside retention",
    "Maintenance.keep_order": BY_MANAGER,
    "Maintenance.relocate": "a move calls it",
    "Maintenance.refuse_appends": BY_MANAGER,
    "Maintenance.rename_directory": BY_MANAGER,
    "Maintenance.update_config": BY_MANAGER,
    "LogManager.checkpoints": "the cleaner's own way to its marks",
    "LogManager.close": BY_RUNTIME,
    "LogManager.damage": "readiness names it",
    "LogManager.interrupt": "a start under way cannot be interrupted by its only thread",
    "LogManager.logs_by_partition": "a list of topics adds them up",
    "LogManager.move_partition": "the mover calls it",
    "LogManager.offline_partitions": "a list of topics names them",
    "LogManager.open": BY_RUNTIME,
    "LogManager.plan_move": "the mover calls it",
    "LogManager.review_damage": BY_RUNTIME,
    "PartitionMover.reports": "it only looks at the reports that moves write",
    "PartitionMover.resume": BY_RUNTIME,
    "PartitionMover.stop": BY_RUNTIME,
    "Scrubber.start": NO_THREADS,
    "Scrubber.stop": BY_RUNTIME,
}
"""Why no step calls it."""


def code_of(member: object) -> CodeType | None:
    if isinstance(member, property):
        member = member.fget
    if isinstance(member, classmethod | staticmethod):
        member = member.__func__
    return member.__code__ if inspect.isfunction(member) else None


def interface() -> dict[CodeType, str]:
    """Return the public methods and properties, by their code."""
    return {
        code: f"{one.__name__}.{name}"
        for one in INTERFACE
        for owner in reversed(one.__mro__)
        if owner.__module__.startswith("engine.")
        for name, member in vars(owner).items()
        if not name.startswith("_") and (code := code_of(member)) is not None
    }


def used_by_steps() -> set[str]:
    """Play lives in which each step comes once; return what of the interface they call."""
    names, used = interface(), set[str]()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        caller = frame.f_back if event == "call" and frame.f_code in names else None
        if caller is not None and "/tests/" in caller.f_code.co_filename:
            used.add(names[frame.f_code])

    for seed in range(WIDE_FROM, WIDE_FROM + LIVES):
        random = Random(seed)
        steps = [
            Step(number, name, random.getrandbits(32))
            for number, name in enumerate(random.sample(list(ALL_WORKS), len(ALL_WORKS)))
        ]
        with deterministic(seed):
            simulation = Simulation(seed)
            sys.setprofile(note)
            try:
                for step in steps:
                    simulation.play(step, ALL_WORKS[step.name])
            finally:
                sys.setprofile(None)
    return used


def test_lives_use_the_whole_interface_of_the_engine() -> None:
    """Each public method is called by a step, or is in the list with a reason, and not both."""
    unused = set(interface().values()) - used_by_steps()
    assert sorted(unused) == sorted(NOT_USED)
