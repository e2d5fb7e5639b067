"""Request heads: refuses what HTTP parsers read differently; ignores `Upgrade`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

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
