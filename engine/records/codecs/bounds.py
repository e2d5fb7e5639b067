"""The sizes in which codecs read and decode, and the error for content beyond a limit."""

from __future__ import annotations

from typing import Final

from engine.errors import TooLarge

PIECE_BYTES: Final = 1024 * 1024
"""How much a codec decodes at once, plus or minus one of its blocks."""

SLICE_BYTES: Final = 64 * 1024
"""How much a codec reads at once."""

LIMIT_NAME: Final = "max_decompressed_batch_bytes"  # as in engine.config


def too_large(limit_bytes: int, actual_bytes: int) -> TooLarge:
    """Return the error for content of at least `actual_bytes`."""
    return TooLarge(
        f"the records decompress to more than {limit_bytes} bytes",
        limit=LIMIT_NAME,
        limit_bytes=limit_bytes,
        actual_bytes=actual_bytes,
    )
