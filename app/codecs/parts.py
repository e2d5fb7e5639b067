"""The parts of an answer about several partitions, as JSON or as multipart/mixed (RFC 2046)."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final

import msgspec

from app.codecs.calls import ReadCall
from app.codecs.receipts import page_frame_bytes, read_headers, to_json
from app.http.answers import PROBLEM, RECORD_BATCH, Headers
from app.store.port import Partition
from engine.log.results import Fetched
from engine.types import INT32_MAX, Buffer

MULTIPART: Final = b"multipart/mixed"


def entry_frame_bytes(partition: Partition) -> int:
    """Return an upper bound for the bytes of an entry besides its records."""
    return len(read_entry(partition, INT32_MAX, b"{")) + page_frame_bytes(partition)


def read_entry(partition: Partition, leader_epoch: int, page: Buffer) -> bytes:
    """Return the entry of a partition that was read; `page` is the body of readRecords."""
    prefix = b'{"outcome":"read","log_id":"%b",' % partition.log_id_at(leader_epoch).encode()
    return b"".join((prefix, memoryview(page)[1:]))


def failed_entry(topic: str, partition: int, problem: Buffer) -> bytes:
    """Return the entry of a failed partition."""
    return to_json(
        {
            "outcome": "failed",
            "topic": topic,
            "partition": partition,
            "problem": msgspec.Raw(bytes(problem)),
        }
    )


def entries_body(entries: Iterable[bytes]) -> bytes:
    """Return all entries as one JSON object."""
    return b'{"partitions":[%b]}' % b",".join(entries)


class MixedParts:
    """An answer with one part for each partition.

    The boundary is random (2^128), so no part contains it.
    """

    def __init__(self) -> None:
        self._boundary = secrets.token_hex(16).encode()
        self._pieces: list[Buffer] = []

    @property
    def content_type(self) -> bytes:
        return b'%b; boundary="%b"' % (MULTIPART, self._boundary)

    def add_batches(
        self, partition: Partition, call: ReadCall, start: int, fetched: Fetched
    ) -> None:
        """Add the answer of readBatches, with its URL."""
        log_id = partition.log_id_at(fetched.leader_epoch).encode()
        query = b"&".join(part for part in (b"offset=%d" % start, call.query) if part)
        url = b"%bbatches?%b&log_id=%b" % (partition.path, query, log_id)
        headers = [(b"content-type", RECORD_BATCH), (b"content-location", url)]
        headers += read_headers(partition, call, fetched, fetched.next_offset, b"batches")
        if fetched.first_offset is not None:
            headers.append((b"log-first-offset", b"%d" % fetched.first_offset))
        self._add(headers, fetched.data)

    def add_problem(self, path: str, problem: Buffer) -> None:
        """Add the problem of a failed partition."""
        self._add([(b"content-type", PROBLEM), (b"content-location", path.encode())], problem)

    def _add(self, headers: Headers, body: Buffer) -> None:
        lines = [b"%b: %b\r\n" % header for header in headers]
        length = b"content-length: %d\r\n\r\n" % len(body)
        self._pieces += [b"--%b\r\n" % self._boundary, *lines, length, body, b"\r\n"]

    def body(self) -> bytes:
        """Return all parts as one body."""
        return b"".join([*self._pieces, b"--%b--\r\n" % self._boundary])
