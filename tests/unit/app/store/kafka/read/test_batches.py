"""Which batches of a response a reader gets."""

import pytest
from kio.schema.fetch.v13.response import AbortedTransaction
from kio.schema.types import ProducerId
from kio.static.primitive import i64

from app.store.kafka.read.batches import Taken, delivered, take
from engine.errors import StoredDataCorrupt
from engine.records.control import ControlType, build_end_marker
from engine.records.scan import iter_headers
from engine.types import Buffer
from tests.support.builders import new_batch
from tests.support.legacy import legacy_message
from tests.support.time import START_MS

WHOLE = 1 << 20
FIRST, SECOND, THIRD = (bytes(new_batch(2, base_offset=offset)) for offset in (0, 2, 6))
SIZE = len(FIRST)
THREE = FIRST + SECOND + THIRD


def test_whole_batches_are_taken() -> None:
    """A batch that the response cuts is left out; the next read begins there."""
    assert take(THREE, 1, max_bytes=WHOLE) == Taken(3 * SIZE, 0, 8)
    assert take(THREE[:-1], 0, max_bytes=WHOLE) == Taken(2 * SIZE, 0, 4)
    assert take(THREE[: SIZE + 5], 0, max_bytes=WHOLE) == Taken(SIZE, 0, 2)
    assert take(b"", 7, max_bytes=WHOLE) == Taken(0, None, 7)


def test_bounds_are_kept() -> None:
    """No more bytes than wanted but for the first batch, nothing from the end offset on."""
    assert take(THREE, 0, max_bytes=2 * SIZE) == Taken(2 * SIZE, 0, 4, is_full=True)
    assert take(THREE, 0, max_bytes=1) == Taken(SIZE, 0, 2, is_full=True)
    assert take(THREE, 0, max_bytes=1, minimum_one_batch=False) == Taken(0, None, 0, is_full=True)
    assert take(THREE, 0, max_bytes=WHOLE, end_offset=3) == Taken(3 * SIZE, 0, 8)._replace(
        size_bytes=2 * SIZE, next_offset=4, is_at_end=True
    )
    assert take(THREE, 4, max_bytes=WHOLE, end_offset=5) == Taken(2 * SIZE, 0, 4, is_at_end=True)


def test_older_formats_are_framed() -> None:
    """Their offset is that of the last record."""
    message = legacy_message(4)
    assert take(message + message, 3, max_bytes=len(message)) == Taken(
        len(message), 4, 5, is_full=True
    )


@pytest.mark.parametrize("data", [bytes(SIZE), b"\xff" * SIZE])
def test_what_is_not_a_batch_is_damage(data: bytes) -> None:
    """It is never passed on."""
    with pytest.raises(StoredDataCorrupt, match="offset 5"):
        take(data, 5, max_bytes=WHOLE)


def transaction(producer_id: int, base_offset: int) -> bytes:
    return bytes(
        new_batch(
            1,
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
    )


def marker(producer_id: int, base_offset: int, kind: ControlType) -> bytes:
    batch = build_end_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=START_MS,
        base_offset=base_offset,
    )
    return bytes(batch)


def aborted(producer_id: int, first_offset: int) -> AbortedTransaction:
    return AbortedTransaction(producer_id=ProducerId(producer_id), first_offset=i64(first_offset))


def offsets(data: Buffer) -> list[int]:
    return [header.base_offset for _, header in iter_headers(data)]


def test_aborted_records_are_left_out() -> None:
    """From the first offset that the broker names to the producer's next marker, and no further."""
    data = b"".join(
        (
            transaction(1, 0),
            transaction(2, 1),
            marker(1, 2, ControlType.ABORT),
            transaction(1, 3),
            marker(1, 4, ControlType.COMMIT),
            new_batch(1, base_offset=5),
            transaction(3, 6),
            transaction(1, 7),
        )
    )
    # Of the third producer the marker lies beyond the response, of the first the second one too.
    told = (aborted(1, 0), aborted(3, 6), aborted(1, 7))
    assert offsets(delivered(data, told)) == [1, 3, 5]


def test_batches_without_transactions_are_passed_on() -> None:
    """They are the broker's bytes, not a copy."""
    assert delivered(THREE, ()) is THREE
