"""Lives of a data directory with an archive, until its disk dies.

Writers, retention, compaction, truncation, topics that come and go, a bucket that fails, a process
that is killed in the midst of an upload, and at last a disk that dies. What is restored then must
be what the log committed, up to at least what the last complete visit archived, and nothing that
it never committed; and a restore to an earlier moment must find what was there then. While the disk
lives, a reader finds all of a log, whether the disk or only the archive has it, and in every fourth
life topics of earlier moments are brought back beside the others, whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from engine.archive.archiver import Archiver
from engine.archive.restore import RestoredPartition, restore, select, verify
from engine.archive.store import StoreUnavailable
from engine.archive.topic_restores import RestoreState, TopicRestores
from engine.cleaner.cleaner import LogCleaner, remove_old_segments
from engine.config import ArchiveConfig, CleanerConfig
from engine.errors import ArchiveUnavailable, InvalidRequestValue
from engine.log.log import Log
from engine.records.builder import build_batch
from engine.types import INT64_MAX
from tests.support.bucket import Bucket, Killed
from tests.support.builders import DATA, World
from tests.support.logs import read_records

KEEP_MS: Final = 3_600_000
CONFIGS: Final[dict[str, dict[str, str | int]]] = {
    "plain": {"segment.bytes": 400, "retention.ms": "-1"},
    "compacted": {
        "segment.bytes": 400,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "retention.ms": "-1",
    },
    "short": {"segment.bytes": 300, "retention.bytes": "900"},
    "long": {
        "segment.bytes": 300,
        "retention.ms": "-1",
        "remote.storage.enable": "true",
        "local.retention.bytes": "400",
    },
    "fleeting": {
        "segment.bytes": 300,
        "retention.bytes": "1500",
        "remote.storage.enable": "true",
        "local.retention.ms": "60000",
    },
}
TOPICS: Final = tuple(CONFIGS)
COPY: Final = "copy"
"""The name under which topics are brought back."""
Content = dict[int, tuple[bytes | None, bytes | None]]
"""Key and value by offset."""


@dataclass
class Version:
    """What a log committed between two truncations."""

    content: Content = field(default_factory=dict)
    end: int = 0


@dataclass
class Model:
    """One log as it must be restorable."""

    versions: list[Version] = field(default_factory=lambda: [Version()])
    visited: int = 0
    """The version at the last complete visit of the archive."""
    least_end: int = 0
    """The end at that visit, lowered by truncations since."""
    start: int = INT64_MAX
    """The log start after the last step: a restart may find a lower one, never a higher one."""


class Moment(NamedTuple):
    """A pass of the archive that was complete."""

    at_ms: int
    ends: dict[tuple[str, int], tuple[int, int]]
    """The version and its end, of each log."""


class Life:
    """One life, decided by its seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.brings_back = seed % 4 == 3
        self.brought_back = 0
        """How often a topic of an earlier moment came back."""
        self.bucket = Bucket(self.random)
        self.world = World()
        self.models: dict[tuple[str, int], Model] = {}
        """By topic id and partition."""
        self.moments: list[Moment] = []
        self.next_value = 0
        self.restored = 0
        self.found_in_archive = 0
        """How often a reader began in the archive."""
        self.open(take_over=False)

    def open(self, *, take_over: bool) -> None:
        """Start the process on the disk as it is."""
        world = self.world
        self.manager = world.open_manager()
        self.is_archive_known = False
        """Whether this process has seen all of the archive."""
        config = ArchiveConfig(keep_ms=KEEP_MS, take_over=take_over)
        self.archiver = Archiver(
            self.manager,
            self.bucket,
            fs=world.fs,
            clock=world.clock,
            config=config,
            recorder=world.recorder,
        )
        off = CleanerConfig(enable=False)  # no thread: it cleans when a step says so
        self.cleaner = LogCleaner(
            self.manager, clock=world.clock, config=off, recorder=world.recorder
        )
        self.cleaner.start()
        for log in self.manager.logs():
            assert log.watermarks.log_start_offset <= self.model_of(log).start, log
            self.note(log)

    def model_of(self, log: Log) -> Model:
        return self.models.setdefault((log.topic_id, log.topic_partition.partition), Model())

    def note(self, log: Log) -> None:
        """Note what the log has committed."""
        version = self.model_of(log).versions[-1]
        for record in read_records(log, max(log.watermarks.log_start_offset, version.end)):
            version.content[record.offset] = (record.key, record.value)
        version.end = log.watermarks.high_watermark

    # -- steps -------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Live, then lose the disk."""
        for _ in range(steps):
            self.world.clock.advance(self.random.choice((1, 50, 10_000, 400_000)))
            step = self.random.choice(self.steps)
            for act in (step, Life.bring_back):
                act(self)
                for log in self.manager.logs():
                    self.model_of(log).start = log.watermarks.log_start_offset
        self.lose_the_disk()

    def some_log(self) -> Log | None:
        logs = [log for log in self.manager.logs() if log.topic_partition.topic in TOPICS]
        return self.random.choice(logs) if logs else None

    def append(self) -> None:
        log = self.some_log()
        if log is None:
            return
        for _ in range(self.random.randint(1, 4)):
            self.next_value += 1
            keys = [b"k%d" % self.random.randrange(4) for _ in range(self.random.randint(1, 3))]
            value, now_ms = b"%d" % self.next_value, self.world.clock.now_ms()
            log.append(build_batch([(now_ms, key, value, ()) for key in keys]))
        if self.random.random() < 0.8:
            log.durability.commit()
            self.note(log)

    def roll(self) -> None:
        log = self.some_log()
        if log is not None:
            log.roll()

    def retain(self) -> None:
        remove_old_segments(log for log in self.manager.logs() if not log.config.is_compacted)

    def delete_records(self) -> None:
        log = self.some_log()
        if log is not None and not log.config.is_compacted:
            marks = log.watermarks
            before = self.random.randint(marks.log_start_offset, marks.high_watermark)
            self.manager.delete_records(log, before)

    def compact(self) -> None:
        for log in self.manager.logs():
            if log.config.is_compacted:
                log.durability.commit()
                self.note(log)
                self.cleaner.clean_now(log)

    def truncate(self) -> None:
        log = self.some_log()
        if log is None:
            return
        marks = log.watermarks
        offset = self.random.randint(marks.log_start_offset, marks.log_end_offset)
        log.durability.commit()
        self.note(log)
        start = log.reader.local_log_start_offset
        try:
            end = self.manager.truncate(log, offset)
        except InvalidRequestValue:
            assert offset < log.reader.local_log_start_offset
            return
        model = self.model_of(log)
        before = model.versions[-1]
        if end < before.end:
            on_disk = read_records(log, log.reader.local_log_start_offset)
            left = {record.offset for record in on_disk}  # a batch is cut as a whole
            kept = {at: one for at, one in before.content.items() if at < start or at in left}
            model.versions.append(Version(kept, end))
            model.least_end = min(model.least_end, end)

    def create_topic(self) -> None:
        name = self.random.choice(TOPICS)
        if name not in self.manager.topics():
            self.manager.create_topic(name, self.random.randint(1, 2), CONFIGS[name])

    def delete_topic(self) -> None:
        topics = sorted(self.manager.topics())
        if topics and self.random.random() < 0.3:
            self.manager.delete_topic(self.random.choice(topics))

    def archive(self) -> None:
        """One pass, in fair or foul weather; the process may be killed in it."""
        bucket, random = self.bucket, self.random
        bucket.trouble = random.choice((0, 0, 0.02, 0.1))
        bucket.is_late = random.random() < 0.1
        if random.random() < 0.2:
            at = bucket.operations + random.randint(1, 30)
            bucket.kill_at = random.choice((at, -at))
        try:
            if self.archiver.run_pass():
                self.is_archive_known = True
                self.see_moment()
            self.see_visits()
        except Killed:
            self.restart(power_cut=random.random() < 0.5)
        finally:
            bucket.kill_at, bucket.trouble, bucket.is_late = None, 0, False

    def read(self) -> None:
        """Read a whole log, which only the archive may have."""
        log = self.some_log()
        if log is None:
            return
        start, high = log.watermarks.log_start_offset, log.watermarks.high_watermark
        begins_in_archive = start < log.reader.local_log_start_offset
        log.maintenance.check_invariants()
        try:
            records = {one.offset: (one.key, one.value) for one in read_records(log)}
        except ArchiveUnavailable:
            assert begins_in_archive
            assert not self.is_archive_known
            return
        self.found_in_archive += begins_in_archive
        version = self.model_of(log).versions[-1]
        topic = log.topic_partition.topic
        assert self._is_of(topic, records, start, high, version), (log, records, version)

    def bring_back(self) -> None:
        """Restore a topic of an earlier moment under another name; the process may die in it."""
        now_ms = self.world.clock.now_ms()
        recent = [one for one in self.moments if one.at_ms + KEEP_MS > now_ms and one.ends]
        is_due = self.brings_back and self.random.random() < 0.1
        if not is_due or not recent or COPY in self.manager.topics():
            return
        moment, random = self.random.choice(recent), self.random
        chosen = select(self.bucket, until_ms=moment.at_ms)
        source = random.choice(sorted(chosen.topics))
        restores = TopicRestores(self.manager, self.bucket, self.world.fs)
        cut = random.choice((1_000_000, random.randint(1, 60)))
        self.bucket.trouble = random.choice((0, 0, 0.05))
        try:
            with self.world.disk.power_cut_before(cut):
                restores.start(COPY, source, moment.at_ms, lambda _: None)
                restores._thread.shutdown()  # noqa: SLF001 - `stop` would give it up
        except ArchiveUnavailable:
            return
        finally:
            self.bucket.trouble = 0
        report = restores.report(COPY)
        if report is None or not report.is_over:
            self.restart(power_cut=random.random() < 0.5)
        is_there = COPY in self.manager.topics()
        if report is not None and report.is_over:
            assert is_there == (report.state is RestoreState.DONE), report
        if not is_there:
            left = [one for one in self.world.fs.list_directory(DATA) if one.startswith(COPY)]
            assert all(one.endswith("-delete") for one in left), left
            return
        topic_id = chosen.topics[source].entry.id
        for log in self.manager.logs_of(COPY):
            number, end = moment.ends[topic_id, log.topic_partition.partition]
            version = self.models[topic_id, log.topic_partition.partition].versions[number]
            then = Version({at: one for at, one in version.content.items() if at < end}, end)
            marks = log.watermarks
            assert marks.high_watermark == marks.log_end_offset == end, (marks, end)
            found = {one.offset: (one.key, one.value) for one in read_records(log)}
            assert self._is_of(source, found, marks.log_start_offset, end, then), (log, found, then)
            self.note(log)
        self.brought_back += 1

    def see_visits(self) -> None:
        """Note for each partition what its archive now surely has."""
        for archive in self.archiver.partitions.values():
            if archive.state.caught_up_ms == self.world.clock.monotonic_ms():
                model = self.model_of(archive.log)
                model.visited = len(model.versions) - 1
                model.least_end = archive.log.watermarks.high_watermark

    def see_moment(self) -> None:
        """Note what a restore to this moment has to find."""
        ends: dict[tuple[str, int], tuple[int, int]] = {}
        for log in self.manager.logs():
            version = len(self.model_of(log).versions) - 1
            key = log.topic_id, log.topic_partition.partition
            ends[key] = version, log.watermarks.high_watermark
        self.moments.append(Moment(self.world.clock.now_ms(), ends))

    def stop(self) -> None:
        self.manager.close()
        self.world.restart(power_cut=False)
        self.open(take_over=False)

    def restart(self, *, power_cut: bool) -> None:
        self.world.restart(power_cut=power_cut)
        self.open(take_over=False)

    def crash(self) -> None:
        self.restart(power_cut=self.random.random() < 0.5)

    steps: Final[tuple[Callable[[Life], None], ...]] = (
        *(append,) * 8,
        *(archive,) * 6,
        *(create_topic,) * 2,
        *(read,) * 2,
        roll,
        retain,
        delete_records,
        compact,
        truncate,
        delete_topic,
        stop,
        crash,
    )

    # -- the end -----------------------------------------------------------------------------

    def lose_the_disk(self) -> None:
        """Restore onto a new disk, compare, and live on from there with the archive taken over."""
        if not any(name.startswith("directory/") for name in self.bucket.objects):
            return
        topics = {
            topic.topic_id: name for name, topic in self.manager.topics().items() if name in TOPICS
        }
        assert verify(self.bucket, select(self.bucket), lambda *_: None) == []
        self._check_moment()
        world = World(clock=self.world.clock)
        done = self._restore(world)
        self.world = world
        self._check_restored(done, topics)

    def _check_moment(self) -> None:
        """Restore to an earlier moment, and compare with what was there then."""
        now_ms = self.world.clock.now_ms()
        recent = [one for one in self.moments if one.at_ms + KEEP_MS > now_ms]
        if not recent:
            return
        moment = self.random.choice(recent)
        world = World(clock=self.world.clock)
        done = {one.log: one for one in self._restore(world, until_ms=moment.at_ms)}
        world.restart(power_cut=True)
        manager = world.open_manager()
        found = {(log.topic_id, log.topic_partition.partition): log for log in manager.logs()}
        assert found.keys() == moment.ends.keys(), (found.keys(), moment.ends.keys())
        for key, (number, end) in moment.ends.items():
            log, version = found[key], self.models[key].versions[number]
            content = {at: one for at, one in version.content.items() if at < end}
            records = {one.offset: (one.key, one.value) for one in read_records(log)}
            start = log.watermarks.log_start_offset
            then = Version(content, end)
            topic = log.topic_partition.topic
            assert self._is_of(topic, records, start, end, then), (moment, key, records, then)
            assert done[log.topic_partition].end_offset <= end

    def _restore(self, world: World, until_ms: int | None = None) -> list[RestoredPartition]:
        self.bucket.trouble = self.random.choice((0, 0, 0.05))
        for _ in range(200):
            try:
                chosen = select(self.bucket, until_ms=until_ms)
                done = restore(self.bucket, world.fs, DATA, chosen, lambda *_: None, threads=1)
            except StoreUnavailable:
                continue
            self.bucket.trouble = 0
            return done
        raise AssertionError("the restore never ended")

    def _check_restored(self, done: list[RestoredPartition], topics: dict[str, str]) -> None:
        self.world.restart(power_cut=True)
        before = self.models
        self.models = {}
        self.open(take_over=True)
        ends = {one.log: one.end_offset for one in done}
        for log in self.manager.logs():
            model = before.get((log.topic_id, log.topic_partition.partition), Model())
            self._check_log(log, model, ends.get(log.topic_partition, 0))
            self.restored += 1
        restored = {log.topic_id for log in self.manager.logs()}
        for key, model in before.items():
            if key[0] in topics and model.least_end > 0:
                assert key[0] in restored, f"{topics[key[0]]} is gone"

    def _check_log(self, log: Log, model: Model, end: int) -> None:
        marks = log.watermarks
        assert marks.high_watermark == marks.log_end_offset == max(end, marks.log_start_offset)
        assert end >= model.least_end, (log, end, model.least_end)
        found: Content = {record.offset: (record.key, record.value) for record in read_records(log)}
        start = marks.log_start_offset
        assert any(
            self._is_of(log.topic_partition.topic, found, start, end, version)
            for version in model.versions[model.visited :]
        ), (log, found, end, model)

    @staticmethod
    def _is_of(topic: str, found: Content, start: int, end: int, version: Version) -> bool:
        """Whether what was restored is the version up to `end`, compacted or not."""
        wanted = {at: one for at, one in version.content.items() if start <= at < end}
        if any(wanted.get(at) != one for at, one in found.items()) or version.end < end:
            return False
        if topic != "compacted":
            return found == wanted
        last = {key: at for at, (key, _) in wanted.items()}
        return set(last.values()) <= found.keys()


def live(seed: int, steps: int = 60) -> Life:
    """Run one life and return it; AssertionError if the restored log is not what it must be."""
    life = Life(seed)
    life.run(steps)
    return life


if __name__ == "__main__":
    import sys

    first, count = int(sys.argv[1]), int(sys.argv[2])
    restored = found_in_archive = 0
    for number in range(first, first + count):
        try:
            life = live(number)
            restored += life.restored
            found_in_archive += life.found_in_archive
        except BaseException:
            sys.stdout.write(f"life {number} failed\n")
            raise
    sys.stdout.write(
        f"{count} lives, {restored} logs restored, {found_in_archive} reads of the archive\n"
    )
