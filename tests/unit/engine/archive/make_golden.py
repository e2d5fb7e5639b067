"""Writes an archive of the present version: `python -m tests.unit.engine.archive.make_golden DIR`.

Once for each version; the archives of earlier versions stay as they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine.records.builder import build_batch
from engine.types import TopicPartition
from tests.support.bucket import Bucket
from tests.unit.engine.archive.test_archiver import Site


def fill(bucket: Bucket) -> None:
    """A topic in several pieces, one compacted, one truncated, one deleted, and a gap."""
    site = Site(bucket)
    manager, clock = site.runtime.manager, site.world.clock
    manager.create_topic("events", 2, {"retention.ms": "-1"})
    manager.create_topic("keys", 1, {"cleanup.policy": "compact"})
    manager.create_topic("gone", 1, {})
    for turn in range(3):
        for log in manager.logs():
            now_ms = clock.now_ms()
            log.append(build_batch([(now_ms, b"k%d" % turn, b"%d" % turn, ())] * 2))
            log.durability.commit()
        site.archive()
        manager.log(TopicPartition("events", 0)).roll()
    manager.truncate(manager.log(TopicPartition("events", 1)), 3)
    manager.delete_topic("gone")
    site.archive()
    site.close()


if __name__ == "__main__":
    made = Bucket()
    fill(made)
    for name, content in made.objects.items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
