"""A plain copy of a data directory, made while it was in use."""

from __future__ import annotations

import errno
from pathlib import Path

from engine.fs import names
from engine.tools.cold_copy import restore_copy, size_of_copy
from engine.types import TopicPartition
from tests.support.bucket import Bucket
from tests.support.builders import DATA
from tests.unit.engine.archive.test_archiver import site

NEW = Path("/new")


def test_what_is_not_in_use_is_left() -> None:
    """Partitions that wait for their removal, and the metadata log of a broker."""
    with site(Bucket()) as here:
        fs = here.world.fs
        here.commit(b"one", b"two")
        here.runtime.manager.checkpoint()
        fs.make_directory(DATA / f"gone-0.{'a' * 32}-delete")
        fs.make_directory(DATA / "__cluster_metadata-0")
        size_bytes = size_of_copy(fs, DATA)
        copied: list[int] = []
        done = restore_copy(fs, DATA, NEW, lambda _, size: copied.append(size))
        assert sum(copied) == size_bytes
        (whole,) = done
        assert whole.log == TopicPartition("events", 0)
        assert (whole.first_offset, whole.end_offset, whole.problem) == (0, 2, None)
        partitions = {one for one in fs.list_directory(NEW) if one.endswith("-0")}
        assert partitions == {"events-0"}


def test_a_log_of_the_copy_that_cannot_be_opened_is_named() -> None:
    """With what keeps it from that; nothing of it is said to be usable."""
    with site(Bucket()) as here:
        fs = here.world.fs
        here.commit(b"one")
        here.runtime.manager.checkpoint()
        file = NEW / "events-0" / names.log_name(0)
        here.world.disk.fail("open", error=errno.EACCES, nth=2, path_end=str(file))
        (broken,) = restore_copy(fs, DATA, NEW, lambda _, __: None)
        assert (broken.log, broken.end_offset) == (TopicPartition("events", 0), 0)
        assert broken.problem is not None
        assert str(file) in broken.problem
