"""Content codings: JSON answers and metrics compressed as Accept-Encoding allows.

Raw batches and Arrow streams are not compressed: the first are stored compressed, and programs that
read either choose their own compression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.codecs.selection import tag_in
from app.http.answers import NO_STORE, Answer, Headers
from app.operations.request_content import codings_of
from app.operations.service import Service
from engine.records.compression import compress
from engine.records.header import Codec

ACCEPT_ENCODING: Final = b"accept-encoding"

_CODECS: Final = {b"gzip": Codec.GZIP, b"zstd": Codec.ZSTD}
_PARTIAL: Final = 206
_LEVEL: Final = 1
"""The level of both: the fastest, and JSON shrinks to a tenth."""


async def coded(service: Service, head: Mapping[bytes, bytes], answer: Answer) -> Answer:
    """Return the answer in the coding that the client prefers, if that is worth it.

    A cacheable answer gets a strong ETag of the coded bytes. An answer with an ETag that is not for
    caches stays as it is: its tag is a condition for later changes.
    """
    status, headers, body = answer
    settings = service.settings
    is_whole = status != _PARTIAL  # ranges are of the bytes that the client has
    if not is_whole or len(body) < settings.min_coded_bytes or not _is_negotiable(headers):
        return answer
    headers = _varying(headers)
    coding = codings_of(head.get(ACCEPT_ENCODING))[0]
    if coding is None:
        return Answer(status, headers, body)

    def work() -> bytes:
        return compress(_CODECS[coding], body, _LEVEL)

    is_small = len(body) <= settings.inline_read_bytes
    shorter = work() if is_small else await service.workers.read(work)
    if len(shorter) >= len(body):
        return Answer(status, headers, body)
    headers = [
        (name, tag_in(coding, value) if name == b"etag" else value) for name, value in headers
    ]
    return Answer(status, [*headers, (b"content-encoding", coding)], shorter)


def _is_negotiable(headers: Headers) -> bool:
    """Whether these are headers of complete JSON or text whose ETag, if any, is for caches."""
    names = dict(headers)
    media_type = names.get(b"content-type", b"").partition(b";")[0]
    is_text = media_type.endswith(b"json") or media_type == b"text/plain"
    if not is_text or b"content-encoding" in names:
        return False
    return b"etag" not in names or names.get(b"cache-control") != NO_STORE[1]


def _varying(headers: Headers) -> Headers:
    """Return the headers with Vary naming Accept-Encoding too."""
    if ACCEPT_ENCODING in dict(headers).get(b"vary", b""):
        return headers
    return [*headers, (b"vary", ACCEPT_ENCODING)]
