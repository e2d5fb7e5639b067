"""An intact log with a fuzzed file beside it: a start must not serve anything else.

`indexes`, `snapshots` and `checkpoints` fuzz one parser each; here a file that a parser accepts is
used by a start, and by the reads after it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from engine.errors import CorruptCheckpoint, CorruptIndex, CorruptSnapshot, StoredDataCorrupt
from engine.fs import names
from engine.types import FetchIsolation
from tests.corruption.images import decide, records_of
from tests.fuzz.targets import ensure_named, target, with_right_crc
from tests.support.builders import World, new_batch
from tests.support.logs import CONFIG, DIRECTORY, Records, fill_segments

EXTRA: Final = DIRECTORY / f"{4:020d}{names.SNAPSHOT_SUFFIX}"
"""A snapshot where none was: a start takes the newest that it can believe."""


class Left(NamedTuple):
    """What a stop or a crash left, and what readers of each isolation found before it."""

    files: Mapping[Path, bytes]
    records: Mapping[FetchIsolation, Records]
    middle: int
    end: int


@cache
def left(*, was_clean: bool) -> Left:
    world = World()
    log = world.open_log(CONFIG)
    fill_segments(log, 4, 3)
    decide(log)
    log.append(new_batch(3, producer_id=7, producer_epoch=0, base_sequence=0))
    log.durability.commit()
    isolations = (FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED)
    records = {isolation: records_of(log, isolation) for isolation in isolations}
    middle, end = log.reader.segments[-1].base_offset, log.watermarks.log_end_offset
    log.durability.flush()
    if was_clean:
        log.close()
    disk = world.disk
    paths = [DIRECTORY / name for name in disk.list_directory(DIRECTORY)]
    return Left({path: disk.read_bytes(path) for path in paths}, records, middle, end)


def sorts(before: Left) -> list[Path]:
    """The files that may be damaged, always in the same order."""
    beside = {path for path in before.files if path.suffix != names.LOG_SUFFIX}
    return sorted(beside | {EXTRA, DIRECTORY / names.SEGMENT_GAPS})


@target
def beside(data: bytes) -> None:
    """Whatever stands in one file beside the log, what is served is right, or the file is named."""
    if len(data) < 2:
        return
    how, which, content = data[0], data[1], data[2:]
    before = left(was_clean=how % 4 == 0)
    recovery_point = (before.end, 0, before.middle, before.end)[how % 4]
    paths = sorts(before)
    path = paths[which % len(paths)]
    is_snapshot = path.suffix == names.SNAPSHOT_SUFFIX
    if is_snapshot and how >= 128:
        content = with_right_crc(content)
    world = World()
    world.disk.begin_with({**before.files, path: content})
    for was_clean, flushed in ((how % 4 == 0, recovery_point), (True, before.end)):
        try:
            log = world.open_log(CONFIG, was_clean=was_clean, recovery_point=flushed)
        except (CorruptCheckpoint, CorruptSnapshot, CorruptIndex) as error:
            ensure_named(path, error)
            return
        log.maintenance.check_invariants()
        assert log.watermarks.log_end_offset == before.end
        for isolation, records in before.records.items():
            if is_snapshot and isolation is FetchIsolation.TXN_COMMITTED:
                continue  # what it says of producers cannot be checked
            with contextlib.suppress(CorruptIndex, StoredDataCorrupt):
                assert records_of(log, isolation) == records
        log.durability.flush()
        log.close()
        world.restart(power_cut=True)
