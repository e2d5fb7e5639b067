"""The worked examples of the format page: batches with all bytes and checksums known."""

from typing import Final

from engine.records.builder import NewRecord
from engine.records.record import Headers

T: Final = 1_700_000_000_000

ONE_RECORD: Final = bytes.fromhex(
    "0000000000000000 00000039 ffffffff 02 965a94b1 0000 00000000 0000018bcfe56800"
    "0000018bcfe56800 ffffffffffffffff ffff ffffffff 00000001 0e00000001026100"
)
"""A: null key, value `a`, time T."""

TRANSACTIONAL: Final = bytes.fromhex(
    "0000000000000064 0000005e 00000005 02 a3381e29 0010 00000002 0000018bcfe56800"
    "0000018bcfe56896 0000000000000fa0 0001 0000000a 00000003"
    "1a 00 00 00 04 6b31 0a 68656c6c6f 00"
    "24 00 ac02 02 04 6b32 01 04 04 6831 02 76 04 6832 01"
    "16 00 27 04 01 0a 776f726c64 00"
)
"""B: three records of producer 4000 with headers, nulls and times out of order."""

TRANSACTIONAL_RECORDS: Final[list[tuple[int, int, bytes | None, bytes | None, Headers]]] = [
    (100, T, b"k1", b"hello", []),
    (101, T + 150, b"k2", None, [("h1", b"v"), ("h2", None)]),
    (102, T - 20, None, b"world", []),
]

COMMIT_MARKER: Final = bytes.fromhex(
    "0000000000000067 00000042 00000005 02 bb70007b 0030 00000000 0000018bcfe568c8"
    "0000018bcfe568c8 0000000000000fa0 0001 ffffffff 00000001"
    "20 00 00 00 08 00000001 0c 000000000003 00"
)
"""C: producer 4000, epoch 1, coordinator epoch 3, at T + 200."""

LZ4_STORED: Final = bytes.fromhex(
    "0000000000000000 0000005c ffffffff 02 ab24cf84 0003 00000001 0000018bcfe56800"
    "0000018bcfe56801 ffffffffffffffff ffff ffffffff 00000002"
    "04224d18 60 40 82 1c000080 1a000000046b310a68656c6c6f00 1a000202046b320a776f726c6400 00000000"
)
"""D: k1/hello at T and k2/world at T + 1, in one stored block."""

SNAPPY: Final = bytes.fromhex(
    "0000000000000000 00000063 ffffffff 02 86b2525e 0002 00000001 0000018bcfe56800"
    "0000018bcfe56801 ffffffffffffffff ffff ffffffff 00000002"
    "82534e4150505900 00000001 00000001 0000001e 1c6c"
    "1a000000046b310a68656c6c6f00 1a000202046b320a776f726c6400"
)
"""E: the same records in xerial framing, one literal."""

EMPTIED: Final = bytes.fromhex(
    "000000000000000f 00000031 0000000f 02 5d4e3d62 0000 00000016 ffffffffffffffff"
    "0000018bcfe56800 0000000000005b7f 0091 000003d7 00000000"
)
"""F: what compaction leaves of offsets 15 to 37 of producer 23423."""

COMMIT_3000: Final = bytes.fromhex(
    "000000000000000d 00000042 00000005 02 39d546a1 0030 00000000 0000018bcfe56fd0"
    "0000018bcfe56fd0 0000000000000bb8 0001 ffffffff 00000001"
    "20 00 00 00 08 00000001 0c 000000000002 00"
)
"""A commit of producer 3000 at offset 13, coordinator epoch 2."""

ALL: Final = {
    "one-record": ONE_RECORD,
    "transactional": TRANSACTIONAL,
    "commit-marker": COMMIT_MARKER,
    "lz4-stored": LZ4_STORED,
    "snappy": SNAPPY,
    "emptied": EMPTIED,
    "commit-3000": COMMIT_3000,
}

TWO_RECORDS: Final[list[NewRecord]] = [
    (283843, b"key1", b"value1", []),
    (1234, b"key2", b"value2", []),
]
"""The records of Kafka's own checksum test, for which it gives the numbers below."""

TWO_RECORDS_CRC: Final = 3_851_219_455
TWO_RECORDS_LZ4_CRC: Final = 2_745_969_314

MAGIC_1: Final = (
    bytes.fromhex("0000000000000007 0000001c 00000000 01 00 0000018bcfe56800 ffffffff 00000006")
    + b"legacy"
)
"""A message of the format before: 34 + 6 bytes, shorter than a header of magic 2."""
