"""How much of a log no reader sees yet."""

from tests.support.builders import World, new_batch
from tests.support.logs import with_config


def test_uncommitted_bytes_are_counted_across_segments() -> None:
    """The rest of the high watermark's segment and all of the later ones; none after a commit."""
    log = World().open_log(with_config(segment_bytes=1024))
    log.append(new_batch())
    log.durability.commit()
    seen = log.reader.size_bytes
    assert (seen > 0, log.durability.uncommitted_bytes) == (True, 0)
    for _ in range(3):
        log.append(new_batch(value=b"x" * 600))
    assert log.reader.segments_count == 3
    assert log.watermarks.high.segment_base_offset == 0
    assert log.durability.uncommitted_bytes == log.reader.size_bytes - seen
    log.durability.commit()
    assert log.durability.uncommitted_bytes == 0
