"""Conditional and range requests (RFC 9110): not modified, a part, or everything.

Pure functions over headers. Every ETag is strong and includes its quotes. `W/` of a tag in a
request is removed, except in If-Range: see `app.codecs.conditions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from app.errors import RangeNotSatisfiable
from app.http.answers import Answer
from engine.errors import PreconditionFailed

Head = Mapping[bytes, bytes]

ACCEPT_RANGES: Final = (b"accept-ranges", b"bytes")

_OPAQUE_TAG: Final = re.compile(rb'"[!#-~\x80-\xff]*"')
_RANGE: Final = re.compile(rb"bytes=[ \t]*([0-9]{0,19})-([0-9]{0,19})[ \t]*", re.IGNORECASE)


class Span(NamedTuple):
    """A range of bytes; `end` is exclusive."""

    start: int
    end: int


def known_tag(head: Head, tags: Iterable[bytes]) -> bytes | None:
    """Return the first of `tags` that If-None-Match lists, weak or not.

    The caller handles `*`, because it knows whether the resource exists.
    """
    header = head.get(b"if-none-match")
    if header is None:
        return None
    known = tags_in(header)
    return next((tag for tag in tags if tag in known), None)


def tags_in(header: bytes) -> list[bytes]:
    """Return the tags of If-None-Match or If-Match, without `W/`."""
    return _OPAQUE_TAG.findall(header)


def ensure_match(head: Head, etag: bytes) -> None:
    """Raise PreconditionFailed for an If-Match with neither `etag`, weak or not, nor `*`."""
    header = head.get(b"if-match")
    if header is None or header.strip() == b"*":
        return
    if etag not in _OPAQUE_TAG.findall(header):
        raise PreconditionFailed(
            f"the ETag is {etag.decode()}, not the expected one", etag=etag.decode()
        )


def span_of(head: Head, etag: bytes, size_bytes: int) -> Span | None:
    """Return the one range that Range selects; None to send everything.

    Everything is sent without Range, for an invalid one, for other units or several ranges, and if
    If-Range has another ETag or a date. Raises RangeNotSatisfiable for a range that begins after
    the end.
    """
    match = _RANGE.fullmatch(head.get(b"range", b""))
    if match is None or head.get(b"if-range", etag).strip() != etag:
        return None
    first, last = match.groups()
    if first:
        start, end = int(first), min(size_bytes, int(last) + 1 if last else size_bytes)
        if last and int(last) < start:
            return None
        if start < size_bytes:
            return Span(start, end)
    elif not last:
        return None
    elif int(last) > 0:
        # The last bytes of an empty file exist, but Content-Range cannot express them.
        return Span(max(0, size_bytes - int(last)), size_bytes) if size_bytes else None
    raise RangeNotSatisfiable(
        f"the requested range is not within {size_bytes} bytes",
        headers={"content-range": f"bytes */{size_bytes}"},
        size_bytes=size_bytes,
    )


def part_of(head: Head, etag: bytes, answer: Answer) -> Answer:
    """Return the range that Range selects of an answer with `etag`, as 206, or all of it."""
    _, headers, body = answer
    span = span_of(head, etag, len(body))
    if span is None:
        return answer
    headers = [*headers, content_range(span, len(body))]
    return Answer(206, headers, memoryview(body)[span.start : span.end])


def content_range(span: Span, size_bytes: int) -> tuple[bytes, bytes]:
    """Return Content-Range."""
    return (b"content-range", b"bytes %d-%d/%d" % (span.start, span.end - 1, size_bytes))


def tag_in(coding: bytes | None, etag: bytes) -> bytes:
    """Return the ETag of a coding: other bytes need another strong tag."""
    return etag if coding is None else etag[:-1] + b"-" + coding + b'"'
