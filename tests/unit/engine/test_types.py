"""The small values: offsets with their place, and names of logs."""

from engine.types import UNKNOWN_OFFSET_METADATA, OffsetMetadata, TopicPartition
from tests.support.kafka import kafka

OLDER = OffsetMetadata(10, 0, 400)
NEWER = OffsetMetadata(20, 15, 100)
OFFSET_ONLY = OffsetMetadata(12)


def test_a_log_is_written_as_its_folder() -> None:
    """The text of a topic partition is the name that Kafka gives its folder."""
    assert str(TopicPartition("flights", 3)) == "flights-3"


@kafka("LogOffsetMetadataTest.testOnOlderSegment")
def test_only_known_places_lie_on_an_older_segment() -> None:
    """A location is older if both are known and its segment begins earlier."""
    assert OLDER.is_on_older_segment_than(NEWER)
    assert not NEWER.is_on_older_segment_than(OLDER)
    assert not OLDER.is_on_older_segment_than(OLDER)
    assert not OFFSET_ONLY.is_on_older_segment_than(NEWER)
    assert not OLDER.is_on_older_segment_than(OFFSET_ONLY)
    assert not UNKNOWN_OFFSET_METADATA.is_on_older_segment_than(UNKNOWN_OFFSET_METADATA)


@kafka("LogOffsetMetadataTest.testMessageOffsetOnly")
def test_an_offset_without_a_place_says_so() -> None:
    """Segment and position are both unknown, or both known."""
    assert OFFSET_ONLY.is_offset_only
    assert UNKNOWN_OFFSET_METADATA.is_offset_only
    assert not OffsetMetadata(0, 0, 0).is_offset_only
