"""Messages of magic 0 and 1: their checksums, their records, and what cannot be one."""

import struct
from itertools import product

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder

from engine.errors import CorruptBatch, InvalidRecord, TooLarge
from engine.records.batch import BatchView
from engine.records.compression import compress
from engine.records.header import UNKNOWN_COUNT, Codec, TimestampType, pack_header, parse_header
from engine.records.record import Record
from engine.records.scan import iter_headers
from tests.support.kafka import kafka
from tests.support.legacy import CODECS, LOG_APPEND_TIME, legacy_message, legacy_wrapper
from tests.unit.engine.records import examples

TWO_RECORDS = [(283843, b"key1", b"value1"), (1234, b"key2", b"value2")]
"""Those of `examples.TWO_RECORDS`: Kafka's checksum test has one set for all formats."""
MAGICS = (0, 1)


def with_broken_lz4_hash(frame: bytes) -> bytes:
    """The frame as the writers of magic 0 made it: its hash covers the magic number too."""
    assert frame[:7].hex() == "04224d18604082"
    return frame[:6] + b"\x1a" + frame[7:]


def kafkas_messages(magic: int) -> bytes:
    """The two records of Kafka's checksum test, uncompressed."""
    return b"".join(
        legacy_message(offset, key, value, magic=magic, timestamp=timestamp)
        for offset, (timestamp, key, value) in enumerate(TWO_RECORDS)
    )


def wrapped(content: bytes, *, magic: int = 1, offset: int = 1, codec: int = Codec.GZIP) -> bytes:
    """A wrapper around any content, with the codec bits of any codec; gzip is used."""
    value = compress(Codec.GZIP, content)
    return legacy_message(offset, None, value, magic=magic, attributes=codec)


def records_of(message: bytes) -> list[Record]:
    view = BatchView(message)
    view.ensure_intact()
    return list(view.records())


@kafka("MemoryRecordsTest.testChecksum")
@pytest.mark.parametrize(("magic", "checksum"), [(0, 1_978_725_405), (1, 109_425_508)])
def test_the_checksum_is_kafkas(magic: int, checksum: int) -> None:
    """The numbers that Kafka's own test has for an uncompressed message."""
    view = BatchView(kafkas_messages(magic))
    view.ensure_intact()
    assert view.header.crc == checksum


@kafka("MemoryRecordsTest.testChecksum")
@pytest.mark.parametrize(("magic", "checksum"), [(0, 66_944_826), (1, 1_407_303_399)])
def test_the_checksum_of_a_wrapper_is_kafkas(magic: int, checksum: int) -> None:
    """The same for two messages in one of LZ4, whose hash is wrong in magic 0."""
    frame = compress(Codec.LZ4, kafkas_messages(magic))
    message = legacy_message(
        1,
        None,
        frame if magic else with_broken_lz4_hash(frame),
        magic=magic,
        timestamp=TWO_RECORDS[0][0],
        attributes=Codec.LZ4,
    )
    view = BatchView(message)
    view.ensure_intact()
    assert view.header.crc == checksum
    assert [(record.key, record.value) for record in view.records()] == [
        (b"key1", b"value1"),
        (b"key2", b"value2"),
    ]


def test_only_magic_0_may_have_the_wrong_lz4_hash() -> None:
    """In magic 1 it is damage, and in magic 0 the right one is fine as well."""
    right = compress(Codec.LZ4, kafkas_messages(0))
    assert len(records_of(legacy_message(1, None, right, magic=0, attributes=Codec.LZ4))) == 2
    wrong = with_broken_lz4_hash(compress(Codec.LZ4, kafkas_messages(1)))
    with pytest.raises(CorruptBatch, match="hash"):
        records_of(legacy_message(1, None, wrong, magic=1, attributes=Codec.LZ4))


@pytest.mark.parametrize(
    ("magic", "codec"), [*product(MAGICS, (Codec.NONE, Codec.GZIP, Codec.SNAPPY)), (1, Codec.LZ4)]
)
def test_another_client_writes_and_reads_the_same(magic: int, codec: Codec) -> None:
    """What aiokafka builds comes out as it went in, and as aiokafka reads it."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset in range(3):
        builder.append(offset, 1000 + offset, b"k%d" % offset, b"v" * offset)
    data = builder.build()
    if codec:
        struct.pack_into(">q", data, 0, 2)  # the offset of the last one, as a broker assigns it
    found, theirs = [], []
    for position, header in iter_headers(data):
        message = bytes(data[position : position + header.size_bytes])
        found += records_of(message)
        theirs += [
            Record(record.offset, record.timestamp or -1, record.key, record.value, ())
            for record in LegacyRecordBatch(message, magic)
        ]
    assert found == theirs
    assert found == [
        Record(offset, 1000 + offset if magic else -1, b"k%d" % offset, b"v" * offset, ())
        for offset in range(3)
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", MAGICS)
def test_a_wrapper_ends_at_its_own_offset(magic: int, codec: Codec) -> None:
    """Inside magic 1 offsets are relative to the last one, inside magic 0 absolute."""
    view = BatchView(legacy_wrapper(40, [b"a", b"b", b"c"], magic=magic, codec=codec))
    assert [(record.offset, record.value) for record in view.records()] == [
        (40, b"a"),
        (41, b"b"),
        (42, b"c"),
    ]
    assert (view.header.base_offset, view.header.last_offset) == (42, 42)
    assert view.header.records_count == UNKNOWN_COUNT
    complete = view.complete_header()
    assert (complete.base_offset, complete.last_offset, complete.next_offset) == (40, 42, 43)
    assert complete.records_count == 3
    assert complete.size_bytes == view.header.size_bytes


def test_other_headers_are_complete() -> None:
    """Nothing is decompressed for a single message or a batch of magic 2."""
    for data in (legacy_message(7), examples.LZ4_STORED):
        view = BatchView(data)
        assert view.complete_header() is view.header


def test_offsets_that_compaction_took_leave_gaps() -> None:
    """The records left in a wrapper keep their distance to the last one."""
    inner = legacy_message(0, value=b"a") + legacy_message(4, value=b"b")
    assert [record.offset for record in records_of(wrapped(inner, offset=104))] == [100, 104]


def test_the_append_time_of_a_wrapper_is_that_of_all_in_it() -> None:
    """Only with its bit set; each message has its own time otherwise."""
    own = legacy_wrapper(0, [b"a", b"b"], timestamp=10)
    assert [record.timestamp for record in records_of(own)] == [10, 11]
    appended = legacy_wrapper(0, [b"a", b"b"], timestamp=10, append_time=True)
    assert [record.timestamp for record in records_of(appended)] == [11, 11]
    assert BatchView(appended).header.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_magic_0_has_no_time_even_in_a_wrapper_of_magic_1() -> None:
    """A mixed wrapper, as an early broker could leave it, is read as Kafka reads it."""
    inner = legacy_message(0, magic=0) + legacy_message(1, timestamp=3)
    message = legacy_message(
        9,
        None,
        compress(Codec.GZIP, inner),
        timestamp=8,
        attributes=Codec.GZIP | LOG_APPEND_TIME,
    )
    found = [(record.offset, record.timestamp) for record in records_of(message)]
    assert found == [(8, -1), (9, 8)]


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize(("key", "value"), [(None, None), (b"", b""), (b"k", None), (None, b"v")])
def test_null_is_not_empty(magic: int, key: bytes | None, value: bytes | None) -> None:
    """Keys and values of any kind come back as they were, alone and in a wrapper."""
    message = legacy_message(0, key, value, magic=magic)
    for data in (message, wrapped(message, magic=magic, offset=0)):
        (record,) = records_of(data)
        assert (record.key, record.value, record.headers) == (key, value, ())


@pytest.mark.parametrize("position", [12, 16, 17, 20, 30, 38])
def test_a_damaged_message_is_found_by_its_checksum(position: int) -> None:
    """From the magic byte on everything is covered, and the checksum itself counts."""
    data = bytearray(legacy_message(3))
    data[position] ^= 0x01
    with pytest.raises(CorruptBatch, match="at offset 3"):
        BatchView(data).ensure_intact()


@kafka("MemoryRecordsTest.testUnsupportedCompress")
def test_zstd_is_refused() -> None:
    """Formats 0 and 1 predate zstd: a message that claims it is invalid."""
    for magic in MAGICS:
        with pytest.raises(InvalidRecord, match="zstd"):
            records_of(wrapped(legacy_message(0), magic=magic, offset=0, codec=Codec.ZSTD))


WRONG_CONTENT = {
    "nothing inside": (b"", "holds no message"),
    "less than a message": (legacy_message(0)[:-1], "holds no message"),
    "a wrapper inside": (wrapped(legacy_message(0), offset=0), "codec bits 1"),
    "magic 2 inside": (bytes(examples.ONE_RECORD), "a message of magic 2"),
    "offsets that go back": (legacy_message(1) + legacy_message(1), "holds 1 after 1"),
    "offsets below 0": (legacy_message(0) + legacy_message(5), "holds -4 after -1"),
    "a field that is too long": (legacy_message(0)[:-9] + b"\0\0\1\0value", "a field of 256"),
}


@pytest.mark.parametrize(("content", "wrong"), WRONG_CONTENT.values(), ids=WRONG_CONTENT)
def test_wrong_content_of_a_wrapper_is_refused(content: bytes, wrong: str) -> None:
    """A correct checksum, but the content is not messages up to the wrapper's offset."""
    with pytest.raises(InvalidRecord, match=wrong):
        records_of(wrapped(content))


def test_a_wrapper_without_value_is_refused() -> None:
    """Null cannot be decompressed."""
    with pytest.raises(InvalidRecord, match="null value"):
        records_of(legacy_message(0, None, None, attributes=Codec.GZIP))


def test_a_wrapper_of_magic_0_holds_nothing_above_its_offset() -> None:
    """Absolute offsets are held to the one that frames them."""
    with pytest.raises(InvalidRecord, match="at offset 1 holds 2"):
        records_of(wrapped(legacy_message(2, magic=0), magic=0, offset=1))


def test_a_message_cut_short_inside_a_wrapper_is_passed_over() -> None:
    """As in Kafka's reader; complete messages before it count."""
    content = legacy_message(0, value=b"whole") + legacy_message(1)[:20]
    assert [record.value for record in records_of(wrapped(content, offset=0))] == [b"whole"]


def test_lengths_that_leave_no_room_are_refused() -> None:
    """A key that takes the place of the value's length."""
    message = legacy_message(0, b"k" * 4, None)
    broken = message[:26] + struct.pack(">i", 8) + message[30:]
    with pytest.raises(InvalidRecord, match="does not fit"):
        list(BatchView(broken[:-4] + b"kkkk").records())
    longer = message[:26] + struct.pack(">i", 6) + message[30:]
    with pytest.raises(InvalidRecord, match="does not fit"):
        list(BatchView(longer).records())


def test_decompression_stops_at_the_limit() -> None:
    """For the records and for the offset alone."""
    view = BatchView(wrapped(legacy_message(0, value=bytes(100_000)), offset=0))
    with pytest.raises(TooLarge):
        list(view.records(limit_bytes=1000))
    with pytest.raises(TooLarge):
        view.complete_header(limit_bytes=1000)


def test_a_header_of_magic_2_is_packed_as_before() -> None:
    """Giving old formats a header takes nothing from the one there was."""
    assert pack_header(parse_header(examples.ONE_RECORD)) == examples.ONE_RECORD[:61]
