"""The header from which a repetition is recognised after a restart."""

from base64 import urlsafe_b64encode

import pytest

from app.codecs.delivery_headers import State

STATE = State(bytes(range(16)), bytes(range(8)), 1_795_219_400_123, 500, 12)


def test_its_bytes_are_documented() -> None:
    """Version, digest, fingerprint, time, records, partitions; big-endian, as protocol rule I5."""
    packed = bytes([1, *range(16), *range(8)]) + b"".join(
        (
            (1_795_219_400_123).to_bytes(8, "big"),
            (500).to_bytes(4, "big"),
            (12).to_bytes(2, "big"),
        )
    )
    assert STATE.pack() == urlsafe_b64encode(packed)
    assert len(STATE.pack()) == 52
    assert State.unpack(STATE.pack()) == STATE


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        STATE.pack()[:-1],
        STATE.pack() + b"=",
        b"=" * 52,
        b"\xff" * 52,
        b"AQ==" + STATE.pack()[4:],
        b"Ag" + STATE.pack()[2:],
    ],
    ids=["null", "empty", "short", "long", "padding", "binary", "padded inside", "version 2"],
)
def test_anything_else_is_no_state(content: bytes | None) -> None:
    """Raw batches may contain anything under this name."""
    assert State.unpack(content) is None
