"""Pages that depend on the release alone: made once, and the same bytes for everybody."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping

from fastapi import FastAPI, Request, Response

from app.codecs.selection import tags_in


class ConstantPage:
    """A page that is rendered at the first request, on its thread, and never again.

    Anonymous callers may ask for it, so a request costs a comparison or a copy of its bytes.
    """

    def __init__(self, make: Callable[[FastAPI], bytes], headers: Mapping[str, str]) -> None:
        self._make = make
        self._headers = dict(headers)
        self._making = threading.Lock()
        self._body: bytes | None = None
        """Set once, under the lock, after the tag."""

    def serve(self, request: Request) -> Response:
        """Return the page, or 304 to a client that has it."""
        with self._making:
            if self._body is None:
                body = self._make(request.app)
                etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
                self._headers |= {"etag": etag, "cache-control": "no-cache"}
                self._body = body
        known = tags_in(request.headers.get("if-none-match", "").encode("latin-1"))
        if self._headers["etag"].encode() in known:
            return Response(status_code=304, headers=self._headers)
        return Response(self._body, headers=self._headers)
