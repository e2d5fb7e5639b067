"""The topics of a data directory, as stored by us."""

import json
from collections import UserDict
from collections.abc import Iterator

import pytest

from engine.checkpoint.tidelog_files import TopicEntry, TopicsFile
from engine.errors import CorruptCheckpoint
from tests.support.filesystem import ForgetfulDisk
from tests.support.place import Place

TOPIC_ID = "S6g8ZPZuQWap3C72_08X5Q"
STORED = {"id": TOPIC_ID, "partitions": 4, "config": {"retention.ms": "-1"}, "adopted": True}


@pytest.fixture
def topics_file(place: Place) -> TopicsFile:
    return TopicsFile(place.fs, place.directory)


def test_topics_come_back_after_a_power_cut(disk: ForgetfulDisk, topics_file: TopicsFile) -> None:
    """Topics are read as written, with configuration and origin, durably."""
    topics = {
        "flights": TopicEntry(TOPIC_ID, 4, {"retention.ms": "-1"}),
        "adopted": TopicEntry("8fQeB1MbSbmXbwPeFIy0qg", 1, adopted=True),
        "grown": TopicEntry("9fQeB1MbSbmXbwPeFIy0qg", 3, adopted=True, added_partitions=2),
        "going": TopicEntry("FxjEwys-QCOgACeMbkEdXQ", 1, deleted=True),
        "gaps": TopicEntry("GxjEwys-QCOgACeMbkEdXQ", 1, compacted=True),
    }
    assert topics_file.read() == {}
    topics_file.write(topics)
    disk.restart()
    assert topics_file.read() == topics
    topics_file.write({})
    assert topics_file.read() == {}


def test_file_is_for_people_too(place: Place, topics_file: TopicsFile) -> None:
    """The file is indented JSON in the order of names, with a version."""
    entry = TopicEntry(TOPIC_ID, 4, {"retention.ms": "-1"}, adopted=True)
    topics_file.write({"b": entry, "a": entry})
    content = place.fs.read_bytes(topics_file.path).decode()
    assert (
        json.loads(content).items() > {"version": 1, "topics": {"a": STORED, "b": STORED}}.items()
    )
    assert content.index('"a"') < content.index('"b"')
    assert content.endswith("}\n")


def test_what_is_kept_of_one_write_for_the_next_changes_nothing(
    place: Place, topics_file: TopicsFile
) -> None:
    """After any change of topics, the bytes are those of a single write."""
    old, new, other = (TopicEntry(TOPIC_ID, count, {"retention.ms": "é"}) for count in (1, 2, 3))
    for generation, topics in enumerate(
        [{"b": old}, {"b": old, "a": other}, {"b": new, "a": other}, {"a": other}, {}, {"b": old}]
    ):
        topics_file.write(topics, generation)
        kept = place.fs.read_bytes(topics_file.path)
        TopicsFile(place.fs, place.directory).write(topics, generation)
        assert kept == place.fs.read_bytes(topics_file.path)
        assert json.loads(kept)["topics"].keys() == topics.keys()


class Watched(UserDict[str, str]):
    """A configuration that counts how often it was read as a whole."""

    reads = 0

    def __iter__(self) -> Iterator[str]:
        self.reads += 1
        return super().__iter__()


def test_a_change_of_one_topic_encodes_no_other(topics_file: TopicsFile) -> None:
    """Among thousands of topics one more costs its own encoding, and copying the other texts."""
    config = Watched({"retention.ms": "-1"})
    kept = TopicEntry(TOPIC_ID, 1, config)
    topics_file.write({"kept": kept})
    first = config.reads
    assert first > 0
    topics_file.write({"kept": kept, "new": TopicEntry(TOPIC_ID, 2)})
    assert config.reads == first
    assert topics_file.read().keys() == {"kept", "new"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"topics": {}}',
        '{"version": 2, "topics": {}}',
        '{"version": 1}',
        '{"version": 1, "topics": []}',
        '{"version": 1, "generation": "2", "topics": {}}',
        '{"version": 1, "generation": -1, "topics": {}}',
        '{"version": 1, "topics": {"a": []}}',
    ],
)
def test_damaged_file_is_refused(place: Place, topics_file: TopicsFile, content: str) -> None:
    """A foreign file, or one of a later version, is an error and not an empty set of topics."""
    place.write(topics_file.path.name, content.encode())
    with pytest.raises(CorruptCheckpoint):
        topics_file.read()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("../etc", {}),
        ("a", {"id": "short"}),
        ("a", {"partitions": 0}),
        ("a", {"partitions": "4"}),
        ("a", {"config": {"retention.ms": 1}}),
        ("a", {"config": []}),
        ("a", {"adopted": 1}),
        ("a", {"deleted": 1}),
        ("a", {"added_partitions": "1"}),
        ("a", {"added_partitions": -1}),
        ("a", {"added_partitions": 5}),
    ],
)
def test_malformed_topic_is_refused(
    place: Place, topics_file: TopicsFile, name: str, wrong: dict[str, object]
) -> None:
    """One wrong field of one topic makes the file an error that names the topic."""
    content = {"version": 1, "topics": {name: {**STORED, **wrong}}}
    place.write(topics_file.path.name, json.dumps(content).encode())
    with pytest.raises(CorruptCheckpoint, match=f"topic '{name}' is malformed"):
        topics_file.read()


@pytest.mark.parametrize("config", [{"segment.index/bytes": "1"}, {"retention.ms": "soon"}])
def test_a_configuration_that_cannot_be_is_refused_with_its_file(
    place: Place, topics_file: TopicsFile, config: dict[str, str]
) -> None:
    """A flipped bit in a name or value is damage of this file, not a wrong request."""
    content = {"version": 1, "topics": {"events": {**STORED, "config": config}}}
    place.write(topics_file.path.name, json.dumps(content).encode())
    with pytest.raises(CorruptCheckpoint, match=r"tidelog-topics\.json.*of topic 'events'"):
        topics_file.read()
