"""Requests of real senders, as they arrived: `tests/interop/senders` has them and their sources."""

from __future__ import annotations

import gzip
import tomllib
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from tests.support.raw import connect
from tests.support.time import START_MS

_FOLDER: Final = Path(__file__).parents[1] / "interop" / "senders"


class Stored(NamedTuple):
    """A record without what the service adds."""

    key: str | None
    value: bytes
    headers: dict[str, str]


@dataclass(frozen=True)
class Capture:
    """One request, and what its topic has to hold after it."""

    name: str
    page: str
    program: str
    source: str
    has_delivery_id: bool = False
    sent_at: datetime | None = None
    query: str = ""
    """Added to the URL that the sender was configured with."""
    values: list[str] | None = None
    """None: the body, without its codings, is the value of one record."""
    key: str | list[str] | None = None
    headers: dict[str, str] | list[dict[str, str]] = field(default_factory=dict)
    answer: str | None = None

    @property
    def sent_ms(self) -> int:
        """The time of the service's clock while it gets this; signatures are not older."""
        return START_MS if self.sent_at is None else int(self.sent_at.timestamp() * 1000)

    @property
    def raw(self) -> bytes:
        content = (_FOLDER / "captures" / f"{self.name}.http").read_bytes()
        target, rest = content.split(b" HTTP/1.1\r\n", 1)
        return target + self.query.encode() + b" HTTP/1.1\r\n" + rest

    @property
    def topic(self) -> str:
        return self.raw.split(b" ", 2)[1].split(b"/")[3].decode()

    def expected(self) -> list[Stored]:
        """Return the records that the request becomes, in order."""
        values = [body_of(self.raw)]
        if self.values is not None:
            values = [value.encode() for value in self.values]
        keys = self.key if isinstance(self.key, list) else [self.key] * len(values)
        headers = self.headers if isinstance(self.headers, list) else [self.headers] * len(values)
        return [Stored(*parts) for parts in zip(keys, values, headers, strict=True)]


@cache
def captures() -> dict[str, Capture]:
    """Return all captures by name."""
    table: dict[str, dict[str, Any]] = tomllib.loads((_FOLDER / "captures.toml").read_text())
    return {name: Capture(name, **fields) for name, fields in table.items()}


def stored_names() -> set[str]:
    """Return the names of the files."""
    return {path.stem for path in (_FOLDER / "captures").iterdir()}


def replay(capture: Capture, url: str) -> httpx.Response:
    """Send the bytes on a connection of their own and return the answer."""
    head, _, body = capture.raw.partition(b"\r\n\r\n")
    with connect(url) as wire:
        wire.sendall(head + b"\r\n\r\n" + body)
        received = b""
        while True:
            piece = wire.recv(65_536)
            received += piece
            answer = _complete(received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n"))
            if answer is not None:
                return answer
            assert piece, f"{capture.name}: hung up after {received!r}"


def _complete(received: bytes) -> httpx.Response | None:
    head, end, body = received.partition(b"\r\n\r\n")
    if not end:
        return None
    status, *lines = head.split(b"\r\n")
    headers = [tuple(line.split(b": ", 1)) for line in lines]
    answer = httpx.Response(int(status.split()[1]), headers=headers, content=body)  # type: ignore[arg-type]  # pairs
    return answer if len(body) == int(answer.headers.get("content-length", 0)) else None


def body_of(raw: bytes) -> bytes:
    """Return the body of a request without its transfer coding and content coding."""
    head, _, body = raw.partition(b"\r\n\r\n")
    head = head.lower()
    if b"transfer-encoding: chunked" in head:
        body = _unchunked(body)
    return gzip.decompress(body) if b"content-encoding: gzip" in head else body


def _unchunked(body: bytes) -> bytes:
    whole = b""
    while True:
        size, _, rest = body.partition(b"\r\n")
        if int(size, 16) == 0:
            return whole
        whole, body = whole + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
