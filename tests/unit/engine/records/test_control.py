"""Control batches: markers byte for byte, and the variations that readers must accept."""

import pytest

from engine.errors import InvalidRecord, InvalidRequestValue
from engine.records.batch import BatchView
from engine.records.builder import encode_batch
from engine.records.control import (
    END_MARKER_BYTES,
    ControlType,
    EndMarker,
    build_end_marker,
    parse_control_type,
    parse_coordinator_epoch,
    parse_end_marker,
)
from engine.records.header import CONTROL_MASK, parse_header
from tests.support.kafka import kafka
from tests.unit.engine.records import examples


def marker(control_type: ControlType) -> bytearray:
    return build_end_marker(
        control_type,
        producer_id=3000,
        producer_epoch=1,
        coordinator_epoch=2,
        timestamp=1_700_000_002_000,
        base_offset=13,
        leader_epoch=5,
    )


@kafka(
    "MemoryRecordsTest.testBuildEndTxnMarker",
    "MemoryRecordsBuilderTest.testWriteEndTxnMarkerNonTransactionalBatch",
)
def test_a_commit_marker_is_kafkas_byte_for_byte() -> None:
    """The worked example of producer 3000 is reproduced whole."""
    assert marker(ControlType.COMMIT) == examples.COMMIT_3000
    assert len(examples.COMMIT_3000) == END_MARKER_BYTES


def test_an_abort_differs_in_its_key_and_checksum_only() -> None:
    """Kafka's checksum of the same marker as an abort."""
    abort, commit = marker(ControlType.ABORT), marker(ControlType.COMMIT)
    differing = [at for at in range(len(abort)) if abort[at] != commit[at]]
    assert differing == [17, 18, 19, 20, 69]
    assert parse_header(abort).crc == 0xCDEB90E9


@kafka("DefaultRecordBatchTest.testReadAndWriteControlBatch")
@pytest.mark.parametrize("control_type", [ControlType.ABORT, ControlType.COMMIT])
def test_a_marker_tells_what_was_put_in(control_type: ControlType) -> None:
    """Type, coordinator epoch, time and offset come back."""
    batch = BatchView(marker(control_type))
    batch.ensure_intact()
    assert batch.header.is_control
    assert batch.header.is_transactional
    end = parse_end_marker(batch)
    assert end == EndMarker(control_type, 2, 1_700_000_002_000, 13)
    assert end is not None
    assert end.is_abort == (control_type is ControlType.ABORT)


def test_an_emptied_control_batch_ends_nothing() -> None:
    """Compaction may leave the header of a marker: the transaction is gone with its records."""
    header = parse_header(examples.COMMIT_MARKER)
    assert parse_end_marker(BatchView(encode_batch(header, []))) is None


def test_other_control_types_end_nothing() -> None:
    """The batch of a new leader has another value, which is ignored."""
    batch = BatchView(examples.COMMIT_MARKER)
    (record,) = batch.records()
    leader_change = record._replace(key=bytes.fromhex("00000002"), value=b"")
    assert parse_end_marker(BatchView(encode_batch(batch.header, [leader_change]))) is None


@pytest.mark.parametrize(
    ("key", "control_type"),
    [
        ("00000000", ControlType.ABORT),
        ("00000001", ControlType.COMMIT),
        ("00000006", ControlType.KRAFT_VOTERS),
        ("00000007", ControlType.UNKNOWN),
        ("0000ffff", ControlType.UNKNOWN),
        ("00050001ff", ControlType.COMMIT),  # a later version is read as the first
    ],
)
def test_the_key_says_the_type(key: str, control_type: ControlType) -> None:
    """Known types have their number, all others are ignored."""
    assert parse_control_type(bytes.fromhex(key)) is control_type


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", bytes.fromhex("ffff0001")])
def test_a_key_that_is_too_short_or_negative_is_refused(key: bytes | None) -> None:
    """Fewer than four bytes or a negative version are errors."""
    with pytest.raises(InvalidRecord, match="key of a control record"):
        parse_control_type(key)


@pytest.mark.parametrize("value", [None, b"", bytes(5), bytes.fromhex("ffff00000001")])
def test_a_value_that_is_too_short_or_negative_is_refused(value: bytes | None) -> None:
    """Fewer than six bytes or a negative version are errors."""
    with pytest.raises(InvalidRecord, match="value of an end marker"):
        parse_coordinator_epoch(value)


def test_a_later_version_of_the_value_is_read_as_the_first() -> None:
    """What later versions append is passed over."""
    assert parse_coordinator_epoch(bytes.fromhex("000900000007ffff")) == 7


@pytest.mark.parametrize(
    ("control_type", "producer_id"),
    [(ControlType.LEADER_CHANGE, 1), (ControlType.UNKNOWN, 1), (ControlType.COMMIT, -1)],
)
def test_only_ends_of_a_producers_transaction_are_built(
    control_type: ControlType, producer_id: int
) -> None:
    """Other types and a missing producer id are refused."""
    with pytest.raises(InvalidRequestValue, match="must commit or abort"):
        build_end_marker(
            control_type,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
        )


def test_data_batches_are_not_asked_for_markers() -> None:
    """Only batches with the control bit have markers, as the worked example has."""
    assert parse_header(examples.COMMIT_MARKER).attributes & CONTROL_MASK
    with pytest.raises(AssertionError):
        parse_end_marker(BatchView(examples.ONE_RECORD))
