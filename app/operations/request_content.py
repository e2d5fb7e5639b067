"""Request content: bounded bodies, parsed headers, media types."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from app.errors import (
    MAX_ERRORS_LISTED,
    DigestMismatch,
    InvalidBody,
    MalformedRequest,
    NotAcceptable,
    RequestTimedOut,
    UnsupportedMediaType,
    body_too_large,
    malformed_json,
)
from app.http.answers import JSON, NDJSON, RECORD_BATCH, Body, Receive
from app.limits.admission import Pace
from app.operations.wait import ClientGone
from app.settings import Settings

M = TypeVar("M", bound=BaseModel)

RECORD_TYPES: Final = (JSON, NDJSON)
BATCH_TYPES: Final = (RECORD_BATCH, b"application/octet-stream")
_ALIASES: Final[Mapping[bytes, bytes]] = {
    b"application/ndjson": NDJSON,
    b"application/jsonl": NDJSON,
}
"""Other names of media types, which programs send."""
CODINGS: Final = (b"zstd", b"gzip")
"""Content codings of answers, the smaller result first."""
_BARELY: Final = 0.0001  # identity is always allowed; a named coding is preferred
_DIGESTS: Final = {"sha-256": hashlib.sha256, "sha-512": hashlib.sha512}
_DIGEST: Final = re.compile(r"\s*([a-z0-9-]+)=:([A-Za-z0-9+/=]*):\s*")


async def collect_body(
    receive: Receive,
    hold: Callable[[int], None],
    settings: Settings,
    *,
    declared: int | None,
    limit: tuple[str, int],
) -> Body:
    """Return the complete body: bytes if it arrived at once, or a bytearray.

    `hold` counts each piece, or raises. Raises TooLarge as soon as the size is known, before
    anything beyond the limit is held, RequestTimedOut, and ClientGone if the client disconnected.
    """
    if declared is not None and declared > limit[1]:
        raise body_too_large(limit, declared)
    pace = Pace(settings, asyncio.get_running_loop().time())
    try:
        async with asyncio.timeout_at(pace.deadline) as timeout:
            return await _collect(receive, hold, limit, pace, timeout)
    except TimeoutError:
        raise RequestTimedOut(pace.complaint) from None


async def _collect(
    receive: Receive,
    hold: Callable[[int], None],
    limit: tuple[str, int],
    pace: Pace,
    timeout: asyncio.Timeout,  # noqa: ASYNC109  # put off while the body comes
) -> Body:
    loop = asyncio.get_running_loop()
    body: Body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        total = len(body) + len(chunk)
        if total > limit[1]:
            raise body_too_large(limit, total)
        hold(len(chunk))
        pace.came(len(chunk), loop.time())
        timeout.reschedule(pace.deadline)
        if not body:
            body = chunk
        else:
            if isinstance(body, bytes):
                body = bytearray(body)
            body += chunk
        if not message.get("more_body"):
            return body


def check_digest(body: Body, header: str) -> None:
    """Compare the body as sent with its Content-Digest (RFC 9530).

    Raises DigestMismatch, and MalformedRequest for a header without a supported digest.
    """
    compared = 0
    for member in header.split(","):
        match = _DIGEST.fullmatch(member)
        if match is None:
            raise MalformedRequest(
                "Content-Digest is not in the format of RFC 9530", header="content-digest"
            )
        algorithm = _DIGESTS.get(match[1])
        if algorithm is None:
            continue
        try:
            expected = base64.b64decode(match[2], validate=True)
        except binascii.Error:
            raise MalformedRequest(
                "Content-Digest is not base64", header="content-digest"
            ) from None
        if algorithm(body).digest() != expected:
            raise DigestMismatch(f"the body does not have the {match[1]} digest it was sent with")
        compared += 1
    if not compared:
        raise MalformedRequest(
            "Content-Digest needs sha-256 or sha-512",
            headers={"want-content-digest": "sha-256=1, sha-512=1"},
            header="content-digest",
        )


def media_type_of(head: Mapping[bytes, bytes], accepted: tuple[bytes, ...]) -> bytes:
    """Return the body's media type without parameters; the first accepted if there is no body.

    Raises UnsupportedMediaType with the accepted types, also for a body without a type: a page of
    another site may send one without a preflight.
    """
    if b"content-type" not in head and not has_body(head):
        return accepted[0]
    media_type = sent_type(head)
    if media_type not in accepted:
        names = [name.decode() for name in accepted]
        given = f"media type {media_type.decode('latin-1')!r} is not accepted"
        raise UnsupportedMediaType(
            f"{given if media_type else 'the body has no type'}; "
            f"send Content-Type: {' or '.join(names)}",
            headers={"accept-post": ", ".join(names)},
            accepted=names,
        )
    return media_type


def sent_type(head: Mapping[bytes, bytes]) -> bytes:
    """Return the media type of the body without parameters; empty if the request names none."""
    media_type = head.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return _ALIASES.get(media_type, media_type)


def has_body(head: Mapping[bytes, bytes]) -> bool:
    """Whether the headers announce a body."""
    return b"transfer-encoding" in head or head.get(b"content-length", b"0").strip(b"0") != b""


def brings_ndjson(head: Mapping[bytes, bytes]) -> bool:
    """Whether records are NDJSON; raises UnsupportedMediaType if neither NDJSON nor JSON."""
    return media_type_of(head, RECORD_TYPES) == NDJSON


def negotiate(header: bytes | None, offered: tuple[bytes, ...]) -> bytes:
    """Return the offered media type that the client prefers; the first without a preference.

    Raises NotAcceptable with the offered types.
    """
    if header is None or header in {b"*/*", b""}:
        return offered[0]
    if header in offered:
        return header
    weights = _weights(header)
    best = max(offered, key=lambda media_type: _quality(media_type, weights))  # first among equals
    if _quality(best, weights) > 0:
        return best
    names = [name.decode() for name in offered]
    raise NotAcceptable("none of the accepted media types is available", accepted=names)


def codings_of(header: bytes | None) -> tuple[bytes | None, ...]:
    """Return the content codings that Accept-Encoding allows, preferred first.

    None stands for identity, the only one if nothing is said or allowed. Among equals the smaller
    answer comes first.
    """
    if header is None:
        return (None,)
    weights = _weights(header)
    rest = weights.get(b"*", 0.0)
    likings: list[tuple[bytes | None, float]] = [
        (coding, weights.get(coding, rest)) for coding in CODINGS
    ]
    likings.append((None, weights.get(b"identity", weights.get(b"*", _BARELY))))
    likings.sort(key=lambda liking: -liking[1])
    return tuple(coding for coding, weight in likings if weight > 0) or (None,)


def _weights(header: bytes) -> Mapping[bytes, float]:
    weights: dict[bytes, float] = {}
    for part in header.lower().split(b","):
        media_type, *parameters = (piece.strip() for piece in part.split(b";"))
        media_type = _ALIASES.get(media_type, media_type)
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith(b"q="):
                weight = _weight(parameter[2:])
        weights[media_type] = weight
    return weights


def _weight(text: bytes) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 0.0


def _quality(media_type: bytes, weights: Mapping[bytes, float]) -> float:
    family = media_type.partition(b"/")[0] + b"/*"
    for name in (media_type, family, b"*/*"):
        if name in weights:
            return weights[name]
    return 0.0


def parse_model(body: Body, model: type[M]) -> M:
    """Return an administrative body as its model.

    Raises MalformedRequest if it is not JSON, InvalidBody with one entry per fault if it does not
    match.
    """
    try:
        return model.model_validate_json(bytes(body))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        if faults[0]["type"] == "json_invalid":
            raise malformed_json(body, faults[0]["msg"]) from None
        raise InvalidBody(
            "the body is not what this operation accepts",
            errors=[
                {
                    "index": None,
                    "field": ".".join(map(str, fault["loc"])) or None,
                    "code": fault["type"],
                    "detail": fault["msg"],
                }
                for fault in faults[:MAX_ERRORS_LISTED]
            ],
        ) from None
