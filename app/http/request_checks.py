"""Request heads: refuses what HTTP parsers read differently; ignores `Upgrade`.

It also knows which URL takes what an append refuses, and how tokens in URLs stay out of logs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
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


_ONCE: Final = frozenset(
    {
        b"authorization",
        b"content-digest",
        b"content-encoding",
        b"content-type",
        b"expected-offset",
        b"host",
        b"idempotency-key",
        b"if-match",
        b"if-none-match",
        b"if-range",
        b"last-event-id",
        b"lease-fence",
        b"origin",
        b"producer-epoch",
        b"producer-id",
        b"producer-sequence",
        b"range",
        b"sec-fetch-site",
        b"traceparent",
        b"transfer-encoding",
        b"x-api-key",
    }
)
"""Parsers disagree on which duplicate of these wins."""

_EVENT: Final = b"ce-"
"""Attributes of a CloudEvent: each has one value, too."""

_ABSOLUTE: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
"""A request target with a scheme and an authority."""

_UPGRADING: Final = frozenset({b"upgrade", b"http2-settings"})


FIELD_BYTES: Final = len(": \r\n")
"""Whitespace around a field's name and value."""

TRACE: Final = b"traceparent"
"""A header that differs in each request."""

_TRACEPARENT: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)


def trace_of(head: Mapping[bytes, bytes]) -> bytes | None:
    """Return a request's traceparent; None without one, or if W3C does not define it.

    It is echoed and logged, so it is checked first.
    """
    trace = head.get(TRACE)
    return trace if trace is not None and _TRACEPARENT.fullmatch(trace) else None


def fault_of(version: str, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return why a head is refused, or None; names are in lower case.

    The parser has already refused grammar errors and two lengths (RFC 9112, 6.3). What remains are
    unsupported versions, and heads that a proxy in front could read differently.
    """
    if version not in {"1.0", "1.1"}:
        return f"HTTP/{version} is not supported; use HTTP/1.1"
    counts = Counter([name for name, _ in headers])
    repeated = sorted(
        name.decode("latin-1")
        for name, count in counts.items()
        if count > 1 and (name in _ONCE or name.startswith(_EVENT))
    )
    if repeated:
        return f"{', '.join(repeated)}: send each of them at most once"
    if version == "1.1" and not counts[b"host"]:
        return "an HTTP/1.1 request needs a Host header"
    if counts[b"transfer-encoding"]:
        coding = dict(headers)[b"transfer-encoding"].strip().lower()
        if version == "1.0" or coding != b"chunked":
            return "Transfer-Encoding is chunked, in HTTP/1.1, or absent"
    return None


def addressed(url: bytes, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers with the authority of an absolute URL as Host (RFC 9112, 3.2.2).

    A proxy in front routes by it, so the check of names must see the same one.
    """
    match = _ABSOLUTE.match(url)
    if match is None:
        return headers
    return [(name, match[1] if name == b"host" else value) for name, value in headers]


def below_prefix(url: bytes, prefix: bytes) -> bytes:
    """Return a target without the prefix of a proxy, which may have taken it off already."""
    rest = url.removeprefix(prefix)
    if rest.startswith(b"/"):
        return rest
    return b"/" + rest if rest[:1] in {b"", b"?"} else url


def size_of(url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> int:
    """Return how many bytes of a head the parser passes on, separators included."""
    return len(url) + sum([len(name) + len(value) + FIELD_BYTES for name, value in headers])


def with_joined_lists(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers with each list in one line (RFC 9110, 5.3).

    The result is a new list: the parser adds trailers, which are not headers, to its own.
    """
    joined = dict(headers)
    if len(joined) == len(headers):
        return list(headers)
    lines: dict[bytes, list[bytes]] = {name: [] for name in joined}
    for name, value in headers:
        lines[name].append(value)
    return [(name, b", ".join(values)) for name, values in lines.items()]


def without_upgrade(method: bytes, url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the head of an HTTP/1.1 request without its request for another protocol.

    Programs that prefer HTTP/2, such as Java's HttpClient, send it with every first request.
    """
    lines = [b"%b %b HTTP/1.1" % (method, url)]
    for name, value in headers:
        kept = value
        if name == b"connection":
            tokens = [token.strip().lower() for token in value.split(b",")]
            kept = b", ".join(token for token in tokens if token not in _UPGRADING)
        if name not in _UPGRADING and kept:
            lines.append(b"%b: %b" % (name, kept))
    return b"\r\n".join([*lines, b"", b""])
