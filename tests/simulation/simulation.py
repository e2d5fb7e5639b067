"""One run: a whole engine on a disk that forgets, its history, and the checks of its state.

Everything runs on one thread and follows from the history. The work of other threads during a wait
for the disk runs between two calls, where no lock is held: clients, the committer and the scrubber.
A round of the committer, a requested move and a pass of the scrubber run when the history says,
however long after their cause.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from engine.config import CleanerConfig, EngineConfig, ScrubConfig
from engine.errors import Overloaded, Recovering, StorageError, TopicConflict
from engine.metrics import NullRecorder, Recorder
from engine.runtime import Runtime
from engine.tools.findings import Finding, Severity
from engine.tools.verify import DirectoryCheck
from engine.types import TopicPartition
from tests.simulation.history import Step
from tests.simulation.looks import look_beside
from tests.simulation.threads import Threads
from tests.simulation.trouble import Kind, Trouble
from tests.support.driven_log import DrivenLog
from tests.support.filesystem import ForgetfulDisk, PowerCut
from tests.support.inodes import Rules
from tests.support.machine import Operation
from tests.support.time import ManualClock, ManualScheduler

WIDE_FROM: Final = 10_000_000
"""Lives of seeds from here on have all steps; see `more_steps`."""
ROUGH_FROM: Final = 100_000_000
"""Lives of seeds from here on are on a file system whose rules are drawn too."""
MOUNTS: Final = 0.3
TROUBLE: Final = 0.2
TROUBLE_AT_A_START: Final = 0.25
MEANWHILE: Final = 0.5
OPENING: Final = frozenset({"open", "open_index", "resize"})
"""Calls under the lock of one file or index. Another thread waits there for a moment; the others of
a life act on the same thread, and would wait for themselves."""
MONTH_MS: Final = 30 * 24 * 3_600_000
DEFAULTS: Final = {
    "segment.bytes": "2000",
    "segment.ms": "3600000",
    "segment.index.bytes": "240",
    "index.interval.bytes": "100",
    "retention.ms": "600000",
    "delete.retention.ms": "60000",
}
CONFIG: Final = EngineConfig(
    recovery_threads=1,
    producer_id_expiration_ms=MONTH_MS,
    default_topic_config=DEFAULTS,
    cleaner=CleanerConfig(enable=False, chunk_bytes=4_096),
    scrub=ScrubConfig(max_bytes_per_second=1e15),
    max_open_sealed_segments=1,
    initial_task_delay_ms=200_000,
)

Overrides = dict[str, str]


@dataclass
class TopicTruth:
    """The truth about a topic: one of several configurations, and its logs."""

    configs: list[Overrides]
    logs: list[DrivenLog]
    may_be_gone: bool = False
    is_hidden: bool = False
    """Whether it does not exist; a start may find it all the same."""
    more_partitions: int = 0
    """How many more a start may find."""


class Simulation:
    """A machine with an engine, and the truth about its topics."""

    def __init__(
        self,
        seed: int,
        disk: ForgetfulDisk | None = None,
        *,
        directories: int | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        random = Random(f"machine {seed}")
        self.is_wide = seed >= WIDE_FROM
        """Whether other threads read logs during a step."""
        self.trouble_at_starts: Callable[[Random, float], Trouble] = Trouble.drawn
        self.told: list[str] = []
        """The history, to understand a failure."""
        self.disk = disk or ForgetfulDisk()
        self.clock = ManualClock()
        self.directories = [Path("/a"), Path("/b")][: directories or random.randint(1, 2)]
        self.is_rough = seed >= ROUGH_FROM
        if self.is_rough:
            self.disk.rules = random.choice(list(Rules))
            self.disk.mounts += [
                directory / f"{name}-0"
                for directory in self.directories
                for name in "xyz"
                if random.random() < MOUNTS
            ]
            self.told.append(f"    {self.disk.rules.name}, mounts: {self.disk.mounts}")
        self.topics: dict[str, TopicTruth] = {}
        self.numbers = itertools.count()
        self.producer_ids: set[int] = set()
        self.steps = 0
        self.trouble = Trouble.none()
        self.threads = Threads(self)
        self._recorder = recorder or NullRecorder()
        self._open()

    # -- what there is -----------------------------------------------------------------------

    @property
    def visible(self) -> dict[str, TopicTruth]:
        return {name: topic for name, topic in self.topics.items() if not topic.is_hidden}

    @property
    def logs(self) -> dict[TopicPartition, DrivenLog]:
        return {
            TopicPartition(name, number): driven
            for name, topic in sorted(self.visible.items())
            for number, driven in enumerate(topic.logs)
        }

    def drive(self, log: TopicPartition) -> DrivenLog:
        """Begin a model of a log that was just made."""
        return DrivenLog(self.manager.log(log), self.clock, self.numbers, self.threads.append)

    @property
    def is_offline(self) -> bool:
        return any(health.is_offline for health in self.manager.directories)

    # -- one step ----------------------------------------------------------------------------

    def play(self, step: Step, work: Callable[[Simulation, Random], None]) -> None:
        """Let one thing happen, with or without trouble, and check everything."""
        random = Random(step.seed)
        trouble = Trouble.drawn(random, TROUBLE)
        if self.is_rough:
            trouble = trouble.roughened(random)
        self.told.append(f"{step.number:3} {step.name} {trouble}")
        self.do(work, random, trouble)

    def do(
        self, work: Callable[[Simulation, Random], None], random: Random, trouble: Trouble
    ) -> None:
        """Do a step with this trouble, and check everything."""
        self.trouble = trouble
        self.steps += 1
        before = self.disk.calls
        try:
            with trouble.on(self.disk), self._others_meanwhile(random):
                work(self, random)
        except PowerCut:
            self.restart(random, trouble)
        except (StorageError, Overloaded, Recovering) as error:
            if trouble.kind is Kind.NOTHING:
                raise
            self.told.append(f"      {type(error).__name__} in {self.disk.calls - before} calls")
            if self.is_offline:
                self.restart(random, trouble)
        except TopicConflict:  # the remains of a topic of that name are in an offline directory
            if not self.is_offline:
                raise
            self.restart(random, trouble)
        else:
            if self.is_offline:
                self.restart(random, trouble)
        self.check()

    @contextmanager
    def _others_meanwhile(self, random: Random) -> Iterator[None]:
        """Allow `interruptible` steps to be interrupted by what others do."""
        self._rest = Random(random.getrandbits(32))
        try:
            yield
        finally:
            self.disk.meanwhile = None

    @contextmanager
    def interruptible(self, *logs: DrivenLog) -> Iterator[None]:
        """Have others append, commit, read and roll between two calls to the disk, at random."""
        random = self._rest
        due = random.randint(1, 10)
        if not logs or random.random() > MEANWHILE:
            yield
            return

        def others(operation: Operation) -> None:
            nonlocal due
            due -= 1
            driven = logs[0]
            if due > 0 or driven.is_busy or operation.name in OPENING:
                return
            # Another reader waits for the result of a verification: on one thread, for ever.
            if any(segment.proofs.proving.locked() for segment in driven.log.reader.segments):
                return
            due = random.randint(1, 30)
            hook, self.disk.meanwhile = self.disk.meanwhile, None
            try:
                self.told.append(f"      meanwhile, before {operation.name} {operation.path}")
                with contextlib.suppress(StorageError, Overloaded):
                    others_act(self, driven, random)
            finally:
                self.disk.meanwhile = hook

        self.disk.meanwhile = others
        try:
            yield
        finally:
            self.disk.meanwhile = None

    # -- starts ------------------------------------------------------------------------------

    def _open(self) -> None:
        self.scheduler = ManualScheduler(self.clock)
        self.runtime = Runtime(
            self.directories,
            CONFIG,
            fs=self.disk,
            clock=self.clock,
            scheduler=self.scheduler,
            recorder=self._recorder,
            on_commit=self.threads.was_committed,
            on_failure=self.threads.was_not_committed,
        )
        self.manager, self.cleaner = self.runtime.manager, self.runtime.cleaner
        self.threads.waiting.clear()
        self.runtime.open()

    def stop(self) -> None:
        """Stop as one should."""
        self.runtime.close()

    def restart(self, random: Random, trouble: Trouble) -> None:
        """End the process in a bad way, and start until it succeeds."""
        least = self.least_ends(is_kill=trouble.only_kills)
        self.disk.meanwhile = None
        trouble.end(self.disk, random)
        is_unharmed = trouble.kind is Kind.NOTHING and trouble.only_kills
        self.start(random, least, has_lost=not is_unharmed)

    def stop_and_start(self, random: Random) -> None:
        """Stop cleanly: then everything is present, even after a power cut."""
        try:
            self.stop()
        except (StorageError, Overloaded):
            if self.trouble.kind is Kind.NOTHING:
                raise
        if self.is_offline or self.trouble.kind is not Kind.NOTHING:
            self.restart(random, self.trouble)
            return
        for driven in self.logs.values():
            driven.was_stopped()
        self.threads.ensure_nobody_waits()
        self.verify()
        self.disk.restart(random=random if random.random() < 0.5 else None)
        self.start(random, self.least_ends(is_kill=False), has_lost=False)

    def least_ends(self, *, is_kill: bool = False) -> dict[DrivenLog, int]:
        """Where each log ends at least after what happens next."""
        return {
            driven: driven.least_end(is_kill=is_kill)
            for topic in self.topics.values()
            for driven in topic.logs
        }

    def start(self, random: Random, least: dict[DrivenLog, int], *, has_lost: bool) -> None:
        """Start until it succeeds, and compare the result with the truth."""
        starts = 1
        while True:
            trouble = self.trouble_at_starts(random, TROUBLE_AT_A_START if starts < 3 else 0)
            what: object = "a directory was left behind"
            try:
                with trouble.on(self.disk):
                    self._open()
                if not self.is_offline:
                    break
            except (PowerCut, StorageError, Overloaded) as error:
                what = repr(error)
            self.told.append(f"      the start failed: {what}: {trouble}")
            assert trouble.kind is not Kind.NOTHING, f"a start failed: {what}"
            starts += 1
            trouble.end(self.disk, random)
            if not trouble.only_kills:
                for driven, end in self.least_ends(is_kill=False).items():
                    least[driven] = min(least[driven], end)
            has_lost = True
        self._compare(least, has_lost=has_lost, starts=starts)

    def _compare(self, least: dict[DrivenLog, int], *, has_lost: bool, starts: int) -> None:
        found = self.manager.topics()
        assert found.keys() <= self.topics.keys(), "there is a topic that nobody made"
        for name, topic in list(self.topics.items()):
            if name not in found:
                assert topic.may_be_gone or topic.is_hidden, f"topic {name} is gone"
                del self.topics[name]
                continue
            overrides, count = dict(found[name].overrides), found[name].partitions
            assert overrides in topic.configs, f"{name} has {overrides}"
            assert len(topic.logs) <= count <= len(topic.logs) + topic.more_partitions
            for number, driven in enumerate(topic.logs):
                log = self.manager.log(TopicPartition(name, number))
                driven.reopen(log, least=least[driven], has_lost=has_lost, starts=starts)
            for number in range(len(topic.logs), count):
                topic.logs.append(self.drive(TopicPartition(name, number)))
            self.topics[name] = TopicTruth([overrides], topic.logs)

        for driven in self.logs.values():
            driven.retry_all()
        self.threads.check_plans()

    # -- checks ------------------------------------------------------------------------------

    def check(self) -> None:
        """Everything that readers can see, and the insides of each log."""
        assert self.threads.wrong == []
        assert self.manager.topics().keys() == self.visible.keys()
        for name, topic in self.visible.items():
            found = self.manager.topic(name)
            assert found.partitions == len(topic.logs)
            assert dict(found.overrides) in topic.configs
        for driven in self.logs.values():
            driven.check(self.steps)

    def verify(self) -> None:
        """The tools find no fault after a clean stop."""
        check = DirectoryCheck(self.disk, self.directories, CONFIG)
        wrong = [
            one
            for one in check.findings()
            if one.severity is not Severity.NOTE
            and not self._was_refused(one)
            and not one.detail.endswith("cannot be read")  # the next start makes it anew
        ]
        assert wrong == [], wrong

    def _was_refused(self, missing: Finding) -> bool:
        """Whether the partition was refused on a disk without space to undo that.

        Each start may find it, and creates it.
        """
        name, _, number = missing.file.name.rpartition("-")
        topic = self.topics.get(name)
        if topic is None or not missing.is_left_to_opening:
            return False
        return topic.is_hidden or int(number) >= len(topic.logs)


def others_act(simulation: Simulation, driven: DrivenLog, random: Random) -> None:
    """What may happen at any time, on any thread."""
    looks = ["look", "look", "look"] if simulation.is_wide else []
    match random.choice(
        ["append", "append", "produce", "commit", "roll", "round", "scrub", *looks]
    ):
        case "look":
            look_beside(driven, random)
        case "round" if not driven.is_syncing:
            simulation.threads.commit_round()
        case "scrub":
            simulation.threads.scrub()
        case "append":
            driven.append(random.randint(1, 4))
        case "produce":
            driven.append_of_producer(random.randint(1, 5), 1)
        case "commit" if not driven.is_syncing:
            driven.commit()
        case _:
            driven.roll()
