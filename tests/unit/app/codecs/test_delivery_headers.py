"""The header from which a repetition is recognised after a restart."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b

import pytest

from app.codecs.delivery_headers import Seal, State

STATE = State(bytes(range(16)), bytes(range(8)), 1_795_219_400_123, 500, 12)
SEAL = Seal(b"secret", "KtuN7ittTxq0YZTNXCrBbw")
PACKED = STATE.pack(SEAL, b"k", b"v")


def test_its_bytes_are_documented() -> None:
    """Version, digest, fingerprint, time, records, partitions, MAC; big-endian, as rule I5."""
    packed = bytes([2, *range(16), *range(8)]) + b"".join(
        (
            (1_795_219_400_123).to_bytes(8, "big"),
            (500).to_bytes(4, "big"),
            (12).to_bytes(2, "big"),
        )
    )
    sealed = SEAL.topic_id.encode() + b" " + packed + b"1 k1 v"
    mac = blake2b(sealed, key=b"secret", digest_size=12, person=b"tidelog-deliver").digest()
    assert urlsafe_b64encode(packed + mac) == PACKED
    assert len(PACKED) == 68
    assert State.unpack(PACKED, SEAL, b"k", b"v") == STATE


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        PACKED[:-1],
        PACKED + b"=",
        b"=" * 68,
        b"\xff" * 68,
        b"AQ==" + PACKED[4:],
        b"AQ" + PACKED[2:],
    ],
    ids=["null", "empty", "short", "long", "padding", "binary", "padded inside", "version 1"],
)
def test_anything_else_is_no_state(content: bytes | None) -> None:
    """Raw batches may contain anything under this name."""
    assert State.unpack(content, SEAL, b"k", b"v") is None


def test_every_bit_and_the_record_are_authenticated() -> None:
    """A digest that was copied with another time, count or fingerprint means nothing."""
    decoded = urlsafe_b64decode(PACKED)
    for bit in range(8 * len(decoded)):
        changed = bytearray(decoded)
        changed[bit // 8] ^= 1 << bit % 8
        assert State.unpack(urlsafe_b64encode(changed), SEAL, b"k", b"v") is None
    for key, value in ((None, b"v"), (b"k", None), (b"", b"v"), (b"kv", b""), (b"v", b"k")):
        assert State.unpack(PACKED, SEAL, key, value) is None
    for seal in (SEAL._replace(secret=b"other"), SEAL._replace(topic_id="another")):
        assert State.unpack(PACKED, seal, b"k", b"v") is None


def test_a_time_beyond_the_table_is_no_state() -> None:
    """Even sealed: the table keeps 32 bits of seconds."""
    far = STATE._replace(accepted_ms=2**32 * 1000)
    assert State.unpack(far.pack(SEAL, None, None), SEAL, None, None) is None
