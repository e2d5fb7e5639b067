"""Ingest URLs: which one takes what an append refuses, and how tokens stay out of logs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from app.http.answers import Scope

SENDER_KEY: Final = "tidelog.ingest_token"
"""The scope key of the token in the URL, if there is one."""

HIDDEN: Final = "redacted"
"""What stands in its place in the path."""

_LAST_SEGMENT: Final = re.compile(r"(/v1/topics/[^/]+/ingest/)([^/]+)")
_RECORDS: Final = re.compile(r"(/v1/topics/[^/]+)/(?:partitions/[^/]+/)?records")
_ANYWHERE: Final = re.compile(r"tli_[0-9a-f]{12}_[A-Za-z0-9_-]+")
_NO_TOKENS: Final = frozenset({"otlp", HIDDEN})


def advice_of(problem: Mapping[str, Any], path: str) -> str:
    """Return what to add to the problem of an append whose body is not that of an append."""
    match = _RECORDS.fullmatch(path)
    if match is None or not _is_foreign_body(problem):
        return ""
    return f"; POST {match[1]}/ingest takes a body of any kind as it is"


def _is_foreign_body(problem: Mapping[str, Any]) -> bool:
    """Whether the body was not meant for an append, rather than has a mistake."""
    if problem["code"] == "invalid_record":
        return any(
            entry["index"] is None or entry["detail"].startswith(("Object ", "Expected "))
            for entry in problem.get("errors", ())[:1]
        )
    return bool(problem["code"] == "unsupported_media_type")


def hide_token(scope: Scope) -> None:
    """Take an ingest token out of the path of a request; may be called again.

    The last segment of `…/ingest/{token}` is hidden whatever it is, because it may be a part of a
    token; elsewhere, what looks like a token is.
    """
    path: str = scope["path"]
    if "/ingest/" not in path and "tli_" not in path:
        return
    match = _LAST_SEGMENT.fullmatch(path)
    if match is None:
        hidden = _ANYWHERE.sub(HIDDEN, path)
    elif match[2] in _NO_TOKENS:
        return
    else:
        scope[SENDER_KEY] = match[2]
        hidden = match[1] + HIDDEN
    if hidden != path:
        scope["path"] = hidden
        scope["raw_path"] = quote(hidden).encode()
