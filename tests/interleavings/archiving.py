"""The archive of a schedule's log, and what a restore of it must find."""

from __future__ import annotations

import itertools

from engine.archive.archived_segments import ArchivedSegments
from engine.archive.catalog import ArchivedTopic
from engine.archive.manifest import Manifest
from engine.archive.partition import PartitionArchive, Tools
from engine.archive.range_cache import RangeCache
from engine.archive.restore import ArchivedPartition, Selection, restore
from engine.archive.upkeep import load_manifest
from engine.config import ArchiveConfig
from engine.log.log import Log
from tests.interleavings.scene import Scene
from tests.support.bucket import Bucket
from tests.support.builders import DATA, World
from tests.support.logs import read_records


class Archiving:
    """The archive of a log, visited beside the works of a schedule."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._bucket = Bucket()
        machine = scene.machine
        tools = Tools(
            self._bucket,
            machine.disk,
            machine.clock,
            ArchiveConfig(),
            scene.recorder,
            1,
            False,
            lambda _: None,
            itertools.count(1),
            ArchivedSegments(RangeCache(self._bucket, machine.clock, 1)),
            lambda log, due: log.maintenance.release(due),
        )
        self._archive = PartitionArchive(tools, scene.log)

    def visit(self) -> None:
        self._archive.visit()

    def check(self) -> None:
        """What the visit made can be restored and opened whole; the next one has all of the log."""
        log = self._scene.log
        if self._manifest() is not None:
            self._restored()
        self._archive.visit()
        records, end, start = self._restored()
        marks = log.watermarks
        assert end == marks.high_watermark, (end, marks)
        assert start == marks.log_start_offset, (start, marks)
        there = {one.offset: (one.key, one.value) for one in read_records(log)}
        assert records == there

    def _manifest(self) -> Manifest | None:
        partition = self._scene.log.topic_partition.partition
        return load_manifest(self._bucket, self._scene.log.topic_id, partition)

    def _restored(self) -> tuple[dict[int, tuple[bytes | None, bytes | None]], int, int]:
        """Return the records, the end and the start of a log that was restored and opened."""
        manifest = self._manifest()
        assert manifest is not None
        log = self._scene.log
        entry = self._scene.manager.topic(log.topic_partition.topic).entry
        topics = {log.topic_partition.topic: ArchivedTopic(log.topic_partition.topic, entry, 0)}
        chosen = Selection(topics, [ArchivedPartition(log.topic_partition, manifest)], 0, ())
        world = World()
        (done,) = restore(self._bucket, world.fs, DATA, chosen, lambda *_: None, threads=1)
        assert done.problem is None
        manager = world.open_manager()
        opened: Log = manager.log(log.topic_partition)
        recovery = opened.durability.recovery
        assert not recovery.truncated_bytes, recovery
        assert recovery.damage is None, recovery
        assert opened.watermarks.log_end_offset == done.end_offset
        records = {one.offset: (one.key, one.value) for one in read_records(opened)}
        found = records, done.end_offset, opened.watermarks.log_start_offset
        manager.close()
        return found
