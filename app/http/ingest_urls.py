"""Ingest tokens in URLs: taken out before anything logs, counts or answers a path."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from app.http.answers import Scope

SENDER_KEY: Final = "tidelog.ingest_token"
"""The scope key of the token in the URL, if there is one."""

HIDDEN: Final = "redacted"
"""What stands in its place in the path."""

_LAST_SEGMENT: Final = re.compile(r"(/v1/topics/[^/]+/ingest/)([^/]+)")
_ANYWHERE: Final = re.compile(r"tli_[0-9a-f]{12}_[A-Za-z0-9_-]+")
_NO_TOKENS: Final = frozenset({"otlp", HIDDEN})


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
