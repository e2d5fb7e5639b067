"""Errors of a body that is refused before decoding: too large, or not JSON."""

from __future__ import annotations

import re
from typing import Final

from app.errors import MalformedRequest
from engine.errors import TooLarge
from engine.types import Buffer

HALF_A_PAIR: Final = re.compile(
    rb"\\u[dD](?:[89abAB][\dA-Fa-f]{2}(?!\\u[dD][c-fC-F])"
    rb"|[c-fC-F](?<!\\u[dD][89abAB]..\\u[dD].)[\dA-Fa-f]{2})",
    re.DOTALL,
)
"""In JSON without escaped backslashes: the escape of a lone surrogate."""


_TRAILING: Final = "trailing characters"
_BEGINNINGS: Final = frozenset({b"{", b"["})
_CUT: Final = ("Input data was truncated", "EOF while parsing")
"""How msgspec and pydantic name what they find."""

_OTHER_CONTENT: Final = (
    (b"\x1f\x8b", "it is compressed; send Content-Encoding: gzip with it"),
    (b"\x28\xb5\x2f\xfd", "it is compressed; send Content-Encoding: zstd with it"),
    (b"\xff\xfe", "it is UTF-16"),
    (b"\xfe\xff", "it is UTF-16"),
)
"""What a body begins with that was sent as it lay in a file."""


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
    """Return why a body is not JSON in UTF-8, where, and what to send instead.

    `reason` is the parser's message. It is replaced where the parser names a symptom only: an empty
    body is "truncated" to it, and JSON lines are "trailing characters".
    """
    content = bytes(body)
    for magic, cause in _OTHER_CONTENT:
        if content.startswith(magic):
            return MalformedRequest(f"the body is not JSON in UTF-8: {cause}")
    if not content.strip():
        return MalformedRequest("the body is empty: send JSON")
    half = HALF_A_PAIR.search(content.replace(rb"\\", b"  "))
    if half is not None:
        escape, byte = half[0].decode(), half.start()
        reason = f"{escape} is half of a surrogate pair without the other half (byte {byte})"
    elif _TRAILING in str(reason) and content.lstrip()[:1] in _BEGINNINGS:
        return MalformedRequest(
            f"the body is more than one JSON value ({reason}): one value per line is "
            "Content-Type: application/x-ndjson, which curl sends with --data-binary, because -d "
            "removes line ends"
        )
    elif any(sign in str(reason) for sign in _CUT):
        reason = f"it ends before its JSON does, after {len(content)} bytes"
    return MalformedRequest(f"the body is not JSON in UTF-8: {reason}")
