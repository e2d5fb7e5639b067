"""Conditions of a request (RFC 9110, 13.1) on one thing that has an ETag, or is not there.

The service gives out strong ETags only. A weak one in a request is one of these after a proxy on
the way has compressed the answer, which leaves the content the same. So `W/` is dropped before
tags are compared, in If-Match too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from app.http.problems import MalformedRequest
from engine.errors import PreconditionFailed

_TAGS: Final = re.compile(r'\s*(?:W/)?"[!#-~\x80-\xff]*"(?:\s*,\s*(?:W/)?"[!#-~\x80-\xff]*")*\s*')
_OPAQUE_TAG: Final = re.compile(r'"[!#-~\x80-\xff]*"')


CONDITIONS: Final = frozenset(
    {
        b"expected-offset",
        b"if-match",
        b"if-modified-since",
        b"if-none-match",
        b"if-unmodified-since",
    }
)
"""Headers that make a change depend on something."""


def ensure_defined(head: Mapping[bytes, bytes], defined: Collection[bytes]) -> None:
    """Raise MalformedRequest for a condition that the operation does not know.

    Passing over one would change what the client wanted to leave alone.
    """
    for name in CONDITIONS.intersection(head):
        if name not in defined:
            raise MalformedRequest(
                f"{name.decode()} is no condition of this operation", header=name.decode()
            )


def ensure_conditions(head: Mapping[bytes, bytes], etag: str | None, **facts: object) -> None:
    """Raise PreconditionFailed unless If-Match and If-None-Match allow a change of what has `etag`.

    None is the tag of what is not there. Raises MalformedRequest for a header that is neither `*`
    nor a list of tags. The error carries the present tag, and the facts.
    """
    for name, has_to_match in ((b"if-match", True), (b"if-none-match", False)):
        header = head.get(name)
        if header is not None and _matches(header, etag, name.decode()) != has_to_match:
            raise PreconditionFailed(
                "there is nothing yet" if etag is None else f"it has the ETag {etag} now",
                etag=etag,
                **facts,
            )


def is_known(head: Mapping[bytes, bytes], etag: str) -> bool:
    """Whether a GET says in If-None-Match that it has this already; raises MalformedRequest."""
    header = head.get(b"if-none-match")
    return header is not None and _matches(header, etag, "if-none-match")


def _matches(header: bytes, etag: str | None, name: str) -> bool:
    """Whether one of the tags is this one, weak or not."""
    text = header.decode("latin-1")
    if text.strip() == "*":
        return etag is not None
    if _TAGS.fullmatch(text) is None:
        raise MalformedRequest(f"{name} takes * or ETags", header=name)
    return etag in _OPAQUE_TAG.findall(text)
