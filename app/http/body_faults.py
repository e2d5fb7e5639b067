"""What is wrong with a body before anything is made of it: its size, or that it is not JSON."""

from __future__ import annotations

import re
from typing import Final

from app.http.problems import MalformedRequest
from engine.errors import TooLarge
from engine.types import Buffer

_HALF_A_PAIR: Final = re.compile(
    rb"\\u[dD](?:[89abAB][\dA-Fa-f]{2}(?!\\u[dD][c-fC-F])"
    rb"|[c-fC-F](?<!\\u[dD][89abAB]..\\u[dD].)[\dA-Fa-f]{2})",
    re.DOTALL,
)
"""In JSON without escaped backslashes: the escape of a lone surrogate."""


def body_too_large(limit: tuple[str, int], actual_bytes: int) -> TooLarge:
    """Return the refusal of a body beyond a limit, of which so much is known to have come."""
    name, limit_bytes = limit
    return TooLarge(
        f"the body is larger than {name} ({limit_bytes})",
        limit=name,
        limit_bytes=limit_bytes,
        actual_bytes=actual_bytes,
    )


def malformed_json(body: Buffer, reason: object) -> MalformedRequest:
    """Return why a body is not JSON in UTF-8, and where.

    `reason` is the parser's message; it is replaced only for a lone surrogate, where it is
    misleading.
    """
    half = _HALF_A_PAIR.search(bytes(body).replace(rb"\\", b"  "))
    if half is not None:
        escape, byte = half[0].decode(), half.start()
        reason = f"{escape} is half of a surrogate pair without the other half (byte {byte})"
    return MalformedRequest(f"the body is not JSON in UTF-8: {reason}")
