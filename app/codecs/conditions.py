"""Conditions of a request (RFC 9110, 13.1) on a resource with an ETag, or a missing one.

The service sends only strong ETags. A weak one in a request is one of these, weakened by a proxy
that compressed the answer, which does not change its content. So `W/` is removed before tags are
compared, in If-Match too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from app.errors import MalformedRequest
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
"""Headers that make a change conditional."""


def ensure_defined(head: Mapping[bytes, bytes], defined: Collection[bytes]) -> None:
    """Raise MalformedRequest for a condition that the operation does not define.

    Ignoring it would change what the client wanted to keep.
    """
    for name in CONDITIONS.intersection(head):
        if name not in defined:
            raise MalformedRequest(
                f"{name.decode()} is not a condition of this operation", header=name.decode()
            )


def ensure_conditions(head: Mapping[bytes, bytes], etag: str | None, **facts: object) -> None:
    """Raise PreconditionFailed unless If-Match and If-None-Match allow a change of `etag`.

    None is the ETag of a missing resource. Raises MalformedRequest for a header that is neither `*`
    nor a list of tags. The error contains the current tag.
    """
    for name, has_to_match in ((b"if-match", True), (b"if-none-match", False)):
        header = head.get(name)
        if header is not None and _matches(header, etag, name.decode()) != has_to_match:
            raise PreconditionFailed(
                "it does not exist" if etag is None else f"the current ETag is {etag}",
                etag=etag,
                **facts,
            )


def is_known(head: Mapping[bytes, bytes], etag: str) -> bool:
    """Whether If-None-Match of a GET lists this ETag; raises MalformedRequest."""
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
