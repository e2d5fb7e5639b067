"""The grammar of names: formatter and parser are inverses, and nothing else is accepted."""

import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidDataDirectory
from engine.fs import names
from engine.fs.names import DirectoryKind, ParsedDirectory
from engine.types import INT32_MAX, INT64_MAX, TopicPartition
from tests.support.kafka import kafka

UNIQUE_ID = "0123456789abcdef0123456789abcdef"
FORMATTERS = [
    names.log_name,
    names.index_name,
    names.time_index_name,
    names.txn_index_name,
    names.snapshot_name,
]
topics = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=249)
partitions = st.integers(0, INT32_MAX)


@kafka("LocalLogTest.testOffsetFromFile", "UnifiedLogTest.testOffsetFromProducerSnapshotFile")
@given(st.sampled_from(FORMATTERS), st.integers(0, INT64_MAX), st.sampled_from(["", ".deleted"]))
def test_segment_names_read_back_as_their_offset(
    formatter: Callable[[int], str], offset: int, suffix: str
) -> None:
    """Every name we write for a segment's file, also one with a suffix, gives the offset back."""
    assert names.base_offset_of(formatter(offset) + suffix) == offset


def test_segment_names_are_those_of_kafka() -> None:
    """Twenty digits and the suffix of the kind of file."""
    assert [formatter(12345) for formatter in FORMATTERS] == [
        "00000000000000012345.log",
        "00000000000000012345.index",
        "00000000000000012345.timeindex",
        "00000000000000012345.txnindex",
        "00000000000000012345.snapshot",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "leader-epoch-checkpoint",
        "partition.metadata",
        "123.log",
        "00000000000000012345",
        "00000000000000012345.",
        "000000000000000123456.log",
        "0000000000000001234x.log",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١٢٣٤٥.log",
        "99999999999999999999.log",
        "-0000000000000012345.log",
        "",
    ],
)
def test_other_files_have_no_base_offset(name: str) -> None:
    """Names that tidelog would not write are not segment files."""
    assert names.base_offset_of(name) is None


def test_suffix_is_stripped_once() -> None:
    """A swap file's final name is its own without the suffix."""
    assert names.without_suffix("00.log.swap", names.SWAP_SUFFIX) == "00.log"


@kafka("LocalLogTest.testParseTopicPartitionName")
@given(topics, partitions)
def test_partition_directories_read_back(topic: str, partition: int) -> None:
    """A directory's name gives its topic and partition back, dots and dashes in it or not."""
    log = TopicPartition(topic, partition)
    parsed = names.parse_partition_directory(names.partition_directory_name(log))
    assert parsed == ParsedDirectory(topic, partition, DirectoryKind.LIVE)
    assert parsed.topic_partition == log


@kafka("LocalLogTest.testParseTopicPartitionNameWithPeriodForDeletedTopic")
@given(topics, partitions, st.sampled_from(["delete", "future"]))
def test_marked_directories_read_back(topic: str, partition: int, kind: str) -> None:
    """A deleted or future directory keeps its partition, and what fits of its topic."""
    formatter = getattr(names, f"{kind}_directory_name")
    name = formatter(TopicPartition(topic, partition), UNIQUE_ID)
    parsed = names.parse_partition_directory(name)
    assert (parsed.partition, parsed.kind) == (partition, DirectoryKind(kind))
    assert topic.startswith(parsed.topic)
    assert kind == "future" or len(name) <= 255
    assert len(name) >= 255 or parsed.topic == topic


def test_a_directory_that_a_broker_found_astray_is_known() -> None:
    """Kafka keeps a foreign partition under such a name, and tidelog does not change it."""
    parsed = names.parse_partition_directory(f"foo-3.{UNIQUE_ID}-stray")
    assert parsed == ParsedDirectory("foo", 3, DirectoryKind.STRAY)


@kafka("LocalLogTest.testLogDeleteDirName")
def test_long_topic_is_cut_to_exactly_what_a_name_may_have() -> None:
    """A topic of maximal length is deleted under a name of 255 characters; Kafka's pattern."""
    long_name = names.delete_directory_name(TopicPartition("n" * 249, 3), UNIQUE_ID)
    assert len(long_name) == 255
    assert names.delete_directory_name(TopicPartition("foo", 3), UNIQUE_ID) == (
        f"foo-3.{UNIQUE_ID}-delete"
    )


@kafka(
    "LocalLogTest.testParseTopicPartitionNameForEmptyName",
    "LocalLogTest.testParseTopicPartitionNameForMissingSeparator",
    "LocalLogTest.testParseTopicPartitionNameForInvalidPartition",
)
@pytest.mark.parametrize(
    "name",
    [
        "",
        "topic",
        "-1",
        "topic-",
        "topic-x",
        "topic--",
        "topic-1x",
        "topic-2147483648",
        "topic-99999999999",
        "two words-1",
        "topic-1-delete",
        "topic-1.-delete",
        "topic-x.abc-delete",
        "-1.abc-delete",
        "topic1.abc-stray",
        "topic-.abc-future",
    ],
)
def test_other_directories_stop_the_start(name: str) -> None:
    """A name that is not a partition's is an error with the name, never a guess."""
    with pytest.raises(InvalidDataDirectory) as refused:
        names.parse_partition_directory(name)
    assert refused.value.facts() == {"name": name}
    assert repr(name) in str(refused.value)


@pytest.mark.parametrize(
    ("topic", "valid"),
    [
        ("flights", True),
        ("A.b_c-9", True),
        ("...", True),
        ("n" * 249, True),
        ("n" * 250, False),
        ("", False),
        (".", False),
        ("..", False),
        ("a/b", False),
        ("a b", False),
        ("ä", False),
        ("a\n", False),
    ],
)
def test_topic_names_are_those_kafka_accepts(topic: str, *, valid: bool) -> None:
    """Letters, digits, dot, underscore and dash, 249 at most, and never a path."""
    assert names.is_valid_topic_name(topic) is valid


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        ("00000000000000000030.log", True),
        ("00000000000000000030.txnindex", True),
        ("00000000000000000030.snapshot.deleted", True),
        ("00000000000000000030.timeindex.swap", True),
        ("00000000000000000030.log.cleaned", True),
        ("leader-epoch-checkpoint", True),
        ("partition.metadata.tmp", True),
        ("tidelog-segment-gaps", True),
        ("tidelog-producer-windows", True),
        ("00000000000000000030-0000000003.checkpoint.deleted", False),
        ("00000000000000000030.checkpoint.deleted", False),
        ("00000000000000000030.log.orig", False),
        ("30.log", False),
        ("notes.txt", False),
    ],
)
def test_names_say_which_files_opening_a_partition_touches(name: str, *, is_ours: bool) -> None:
    """What it reads, completes, replaces or removes; anything else may be foreign."""
    assert names.is_of_a_log(name) is is_ours


def test_the_end_of_a_removal_reads_back() -> None:
    """It is in the name of a file that will be removed, in Kafka's format."""
    name = names.log_name(5) + names.removal_suffix(4711)
    assert name == "00000000000000000005.log.00000000000000004711.deleted"
    assert names.removal_end(name) == 4711
    assert names.is_leftover(name)
    for other in (names.log_name(5), names.log_name(5) + names.DELETED_SUFFIX, "x" + name):
        assert names.removal_end(other) is None
