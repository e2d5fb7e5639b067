"""One log with some content, on an in-memory disk, for the works of a schedule."""

from __future__ import annotations

from random import Random
from typing import Final

from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.metrics import NullRecorder
from engine.state.watermarks import Watermarks
from engine.types import TopicPartition
from tests.simulation.simulation import Simulation, TopicTruth
from tests.simulation.trouble import Ending, Kind, Trouble
from tests.support.driven_log import IDEMPOTENT, TRANSACTIONAL, DrivenLog

PARTITION: Final = TopicPartition("t", 0)
NUMBERS: Final = 1_000


class DamageCounter(NullRecorder):
    """Counts the engine's reports of damage, all of which are wrong on this disk."""

    def __init__(self) -> None:
        self.found = 0

    def corrupt_data_found(self, log: TopicPartition) -> None:
        self.found += 1


class Moment:
    """The state of the log that a thread may have seen at one instant at which it ran."""

    __slots__ = ("is_appending", "is_cutting", "leader_epoch", "marks")

    def __init__(self, log: Log, *, is_cutting: bool, is_appending: bool) -> None:
        self.is_cutting = is_cutting
        self.is_appending = is_appending
        self.marks: Watermarks = log.watermarks
        self.leader_epoch = log.reader.leader_epoch


class Scene:
    """A machine with one topic of one partition, and the truth about its log."""

    def __init__(self, random: Random) -> None:
        self.recorder = DamageCounter()
        self.is_compacted = random.random() < 0.35
        self.machine = Simulation(0, directories=2, recorder=self.recorder)
        self.machine.trouble_at_starts = lambda _random, _chance: Trouble.none()
        numbers = iter(random.sample(range(NUMBERS), NUMBERS))  # so times are in no order
        overrides = self._overrides(random)
        self.manager.create_topic(PARTITION.topic, 1, overrides)
        log = self.manager.log(PARTITION)
        self.driven = DrivenLog(log, self.machine.clock, numbers)
        self.machine.topics[PARTITION.topic] = TopicTruth([dict(overrides)], [self.driven])
        self._fill(random)

    def _overrides(self, random: Random) -> dict[str, str]:
        overrides = {
            "cleanup.policy": "compact" if self.is_compacted else "delete",
            "segment.bytes": random.choice(("700", "2000")),
            "index.interval.bytes": random.choice(("0", "100", "300")),
            "segment.index.bytes": random.choice(("24", "48", "240")),
            "min.cleanable.dirty.ratio": "0.01",
        }
        if random.random() < 0.3:
            overrides["retention.bytes"] = "1200"
        elif random.random() < 0.3:
            overrides["retention.ms"] = "500"
        return overrides

    def _fill(self, random: Random) -> None:
        driven = self.driven
        for _ in range(random.randint(1, 4)):
            for _ in range(random.randint(1, 4)):
                fill_step(driven, random)
            if random.random() < 0.6:
                driven.roll()
            if random.random() < 0.7:
                driven.commit()
        if random.random() < 0.5:
            driven.flush()
        if random.random() < 0.4:
            self.machine.scheduler.run_due()
            driven.see_commits()
        if random.random() < 0.2:
            self.machine.stop_and_start(random)  # entries found on a disk are verified when read
        self.driven.saved_log_start = self.driven.model.log_start

    @property
    def manager(self) -> LogManager:
        return self.machine.manager

    @property
    def log(self) -> Log:
        return self.driven.log

    # -- the end -----------------------------------------------------------------------------

    def start_after_close(self, random: Random) -> None:
        """Check that the stop has lost nothing, and start again."""
        machine = self.machine
        assert self.recorder.found == 0, "damage was reported where there is none"
        machine.threads.wrong.clear()  # a commit may come after the stop
        self.driven.was_stopped()
        machine.verify()
        machine.disk.restart(random=random if random.random() < 0.5 else None)
        machine.start(random, {self.driven: self.driven.model.end}, has_lost=False)

    def end(self, random: Random) -> None:
        """Compare the log with its model, end the process somehow, start again, compare again."""
        assert self.recorder.found == 0, "damage was reported where there is none"
        assert not self.machine.cleaner.uncleanable, self.machine.cleaner.uncleanable
        assert not self.machine.is_offline
        self._check_times()
        self.driven.check(random.randrange(100))
        if random.random() < 0.6:
            self.machine.stop_and_start(random)
        else:
            ending = random.choice(list(Ending))
            self.machine.restart(random, Trouble(Kind.NOTHING, 1, 5, ending))
        self.machine.check()

    def _check_times(self) -> None:
        """Each segment knows the largest time of its batches."""
        for segment in self.log.reader.listing().segments:
            times = [
                batch.header.max_timestamp
                for batch in self.driven.model.batches
                if self.driven.model.log_start
                <= segment.base_offset
                <= batch.base_offset
                < segment.next_offset
            ]
            assert not times or segment.largest_timestamp == max(times), "a time was forgotten"


def fill_step(driven: DrivenLog, random: Random) -> None:
    """Append something."""
    producer_id = random.choice((*IDEMPOTENT, *TRANSACTIONAL))
    match random.choice(("plain", "plain", "several", "produce", "end")):
        case "plain":
            driven.append(random.randint(1, 4))
        case "several":
            driven.append_several([random.randint(1, 3) for _ in range(random.randint(2, 3))])
        case "produce":
            driven.append_of_producer(producer_id, random.randint(1, 3))
        case _:
            driven.end_transaction(producer_id, commits=random.random() < 0.5, fences=False)
