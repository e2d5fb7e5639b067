"""The header as table and as value."""

import struct

import pytest

from engine.errors import CorruptBatch, UnsupportedCompression
from engine.records.header import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    LENGTH_POSITION,
    MAGIC_POSITION,
    BatchHeader,
    Codec,
    TimestampType,
    decrement_sequence,
    frame_size,
    increment_sequence,
    pack_header,
    parse_header,
)
from engine.types import INT32_MAX
from tests.support.kafka import kafka
from tests.unit.engine.records import examples


def with_length(length: int) -> bytes:
    return (
        examples.ONE_RECORD[:LENGTH_POSITION]
        + length.to_bytes(4, "big", signed=True)
        + examples.ONE_RECORD[LENGTH_POSITION + 4 :]
    )


def with_magic(magic: int) -> bytes:
    batch = bytearray(examples.ONE_RECORD)
    batch[MAGIC_POSITION] = magic
    return bytes(batch)


def with_attributes(attributes: int) -> BatchHeader:
    return parse_header(examples.ONE_RECORD)._replace(attributes=attributes)


def test_every_field_of_the_worked_example_is_where_the_format_says() -> None:
    """The transactional example has the fields that its description names."""
    header = parse_header(examples.TRANSACTIONAL)
    assert header == BatchHeader(
        base_offset=100,
        length=94,
        leader_epoch=5,
        magic=2,
        crc=0xA3381E29,
        attributes=0x0010,
        last_offset_delta=2,
        base_timestamp=examples.T,
        max_timestamp=examples.T + 150,
        producer_id=4000,
        producer_epoch=1,
        base_sequence=10,
        records_count=3,
    )
    assert header.size_bytes == 106 == len(examples.TRANSACTIONAL)
    assert (header.last_offset, header.next_offset, header.last_sequence) == (102, 103, 12)
    assert header.is_transactional
    assert header.has_producer_id
    assert not header.is_control
    assert not header.has_delete_horizon
    assert header.codec is Codec.NONE
    assert header.timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize("name", examples.ALL)
def test_packing_a_parsed_header_gives_its_bytes_again(name: str) -> None:
    """Parser and packer are inverses for every worked example."""
    batch = examples.ALL[name]
    assert pack_header(parse_header(batch)) == batch[:HEADER_BYTES]


def test_a_header_is_read_at_a_position_and_from_any_buffer() -> None:
    """What stands before the batch and what kind of buffer holds it make no difference."""
    shifted = memoryview(bytearray(b"...." + examples.TRANSACTIONAL))
    assert parse_header(shifted, 4) == parse_header(examples.TRANSACTIONAL)


@pytest.mark.parametrize(
    ("bit", "name"),
    [(0x10, "is_transactional"), (0x20, "is_control"), (0x40, "has_delete_horizon")],
)
def test_each_flag_is_one_bit(bit: int, name: str) -> None:
    """A flag is set by its own bit and by no other."""
    assert getattr(with_attributes(bit), name)
    assert not getattr(with_attributes(0xFF & ~bit), name)


def test_the_timestamp_type_is_bit_three() -> None:
    """Bit 3 alone marks log-append time."""
    assert with_attributes(0x08).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert with_attributes(0x77).timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize("bits", range(8))
def test_codec_bits_without_a_codec_are_refused(bits: int) -> None:
    """Five of the eight patterns name a codec; the rest raise instead of guessing."""
    if bits < 5:
        assert with_attributes(bits).codec == bits
        return
    with pytest.raises(UnsupportedCompression, match=f"codec bits {bits}"):
        _ = with_attributes(bits).codec


def test_codecs_have_the_names_of_the_configuration() -> None:
    """Labels and codecs map one to one, and an unknown label raises."""
    assert [codec.label for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [Codec.of_label(codec.label) for codec in Codec] == list(Codec)
    with pytest.raises(UnsupportedCompression, match="'brotli'"):
        Codec.of_label("brotli")


@kafka("DefaultRecordTest.testSerdeNoSequence")
def test_a_batch_without_sequence_has_no_last_sequence() -> None:
    """The last sequence of a batch without producer is -1, whatever its offsets."""
    header = parse_header(examples.ONE_RECORD)._replace(last_offset_delta=7)
    assert header.last_sequence == -1
    assert not header.has_producer_id


@kafka("DefaultRecordBatchTest.buildDefaultRecordBatchWithSequenceWrapAround")
def test_the_last_sequence_wraps() -> None:
    """Three records from the last but one sequence end at sequence 0."""
    header = parse_header(examples.TRANSACTIONAL)._replace(base_sequence=INT32_MAX - 1)
    assert header.last_sequence == 0


@kafka("DefaultRecordBatchTest.testIncrementSequence")
@pytest.mark.parametrize(
    ("sequence", "by", "sum_"), [(5, 5, 10), (INT32_MAX, 1, 0), (INT32_MAX - 5, 10, 4)]
)
def test_sequences_are_counted_modulo_31_bits(sequence: int, by: int, sum_: int) -> None:
    """After 2**31 - 1 comes 0, and going back is the inverse of going on."""
    assert increment_sequence(sequence, by) == sum_
    assert decrement_sequence(sum_, by) == sequence


@kafka("DefaultRecordBatchTest.testDecrementSequence")
def test_the_sequence_before_zero_is_the_greatest() -> None:
    """Kafka's own examples of counting back."""
    assert decrement_sequence(5, 5) == 0
    assert decrement_sequence(0, 1) == INT32_MAX


@kafka(
    "MemoryRecordsTest.testNextBatchSize",
    "ByteBufferLogInputStreamTest.iteratorRaisesOnTooSmallRecords",
)
@pytest.mark.parametrize("length", [-1, 0, 13])
def test_a_length_that_no_batch_has_is_corrupt(length: int) -> None:
    """Less than 14 bytes after the length, zeros among them, cannot be a batch of any format."""
    with pytest.raises(CorruptBatch, match=f"claims {length} bytes"):
        parse_header(with_length(length))
    with pytest.raises(CorruptBatch, match=f"claims {length} bytes"):
        frame_size(with_length(length))


@kafka("DefaultRecordBatchTest.testInvalidRecordSize")
@pytest.mark.parametrize("length", [14, 48])
def test_a_length_below_the_header_of_magic_2_is_corrupt(length: int) -> None:
    """A batch that claims to end inside its own header is refused before its fields count."""
    with pytest.raises(CorruptBatch, match="too short"):
        parse_header(with_length(length))


@kafka(
    "MemoryRecordsTest.testNextBatchSize",
    "ByteBufferLogInputStreamTest.iteratorRaisesOnInvalidMagic",
)
@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_an_unknown_magic_is_corrupt(magic: int) -> None:
    """Only 0 to 2 are formats; the byte is signed."""
    with pytest.raises(CorruptBatch, match="has magic"):
        parse_header(with_magic(magic))


@pytest.mark.parametrize(("magic", "timestamp"), [(0, -1), (1, 1_700_000_000_000)])
def test_the_old_formats_give_the_fields_they_have(magic: int, timestamp: int) -> None:
    """A message before magic 2 is one record; what its format lacks is none or -1."""
    batch = bytearray(examples.MAGIC_1)
    batch[MAGIC_POSITION] = magic
    assert frame_size(batch) == len(batch) < HEADER_BYTES
    assert parse_header(batch) == BatchHeader(
        base_offset=7,
        length=28,
        leader_epoch=-1,
        magic=magic,
        crc=0,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=1,
    )


@pytest.mark.parametrize(("magic", "attributes"), [(0, 0x07), (1, 0x0F)])
def test_only_codec_and_timestamp_type_count_in_the_old_formats(
    magic: int, attributes: int
) -> None:
    """The bits that mean transaction, control or horizon later meant nothing then."""
    batch = bytearray(examples.MAGIC_1)
    batch[MAGIC_POSITION : MAGIC_POSITION + 2] = bytes([magic, 0xFF])
    assert parse_header(batch).attributes == attributes


@pytest.mark.parametrize(("magic", "least"), [(0, 14), (1, 22)])
def test_an_old_message_shorter_than_its_format_is_corrupt(magic: int, least: int) -> None:
    """The size must leave room for the two lengths, and the fields must be there."""
    message = bytearray(struct.pack(">qiIbb", 0, least, 0, magic, 0) + bytes(16))
    assert parse_header(message).size_bytes == least + 12
    with pytest.raises(CorruptBatch, match="too short for a header"):
        parse_header(message[: least + 12 - 9])
    struct.pack_into(">i", message, 8, least - 1)
    with pytest.raises(CorruptBatch, match=f"claims {least - 1} bytes"):
        parse_header(message)


@pytest.mark.parametrize("size", [0, 16, 17, 60])
def test_fewer_bytes_than_a_header_are_corrupt(size: int) -> None:
    """An incomplete header is an error, wherever it ends."""
    with pytest.raises(CorruptBatch, match="too short"):
        parse_header(examples.ONE_RECORD[:size])


@kafka("MemoryRecordsTest.testNextBatchSize")
def test_too_few_bytes_to_frame_are_no_error() -> None:
    """Up to 16 bytes are too few to frame a batch."""
    assert frame_size(examples.ONE_RECORD[:16]) is None
    assert frame_size(examples.ONE_RECORD, len(examples.ONE_RECORD)) is None
    assert frame_size(examples.ONE_RECORD[:17]) == len(examples.ONE_RECORD)


def test_the_attributes_come_right_after_the_checksum() -> None:
    """The position that the checksum starts from is the one of Kafka's format."""
    assert ATTRIBUTES_POSITION == 21


@kafka("DefaultRecordBatchTest.testSetNoTimestampTypeNotAllowed")
def test_a_batch_has_the_time_of_its_creation_or_of_its_append() -> None:
    """Whatever its attributes; there is no third type of timestamp."""
    found = {with_attributes(attributes).timestamp_type for attributes in range(256)}
    assert found == {TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME}
    with pytest.raises(ValueError, match="-1"):
        TimestampType(-1)
