"""The compiled codec, held on its leash."""

import pytest

from engine.records.compiled import DECODING_ERRORS, iterate, new_builder
from engine.records.header import HEADER_BYTES, parse_header
from tests.unit.engine.records import examples


def test_a_header_of_a_compressed_batch_goes_with_uncompressed_bytes() -> None:
    """The codec bits are taken off, so that the library never decompresses anything itself."""
    payload = examples.LZ4_STORED[HEADER_BYTES + 11 : -4]  # the content of the frame's one block
    records = iterate(examples.LZ4_STORED, payload, 2)
    assert [(record.key, record.value) for record in records] == [
        (b"k1", b"hello"),
        (b"k2", b"world"),
    ]


@pytest.mark.parametrize("tail", ["80", "ff", "ffffffffff", "0e0000000102618080"])
def test_numbers_that_run_over_the_end_meet_zeros(tail: str) -> None:
    """A number without an end stops in the padding and is then found to be too long."""
    with pytest.raises(DECODING_ERRORS):
        list(iterate(examples.ONE_RECORD, bytes.fromhex(tail), 1))


def test_a_builder_has_no_limit_of_its_own() -> None:
    """Records larger than any batch size a producer would choose go in and count."""
    builder = new_builder()
    for delta in range(3):
        builder.append(delta, 5, None, bytes(1_000_000), [])
    assert parse_header(builder.build()).records_count == 3
