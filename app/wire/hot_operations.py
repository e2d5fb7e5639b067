"""Which requests are hot: ingest; appends, reads and offsets of one partition.

They are recognized by method and URL, in the form that clients usually send. FastAPI explains every
other URL, malformed or merely unusual.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from app.codecs.calls import (
    FAST_APPEND_CALLS,
    FAST_INGEST_CALLS,
    PARTITION,
    AppendCall,
    IngestCall,
    ReadCall,
    fast_read_call,
)
from engine.fs.names import MAX_TOPIC_LENGTH

INGEST: Final = "ingest"
"""The operation that senders without credentials may call."""

MAX_URLS: Final = 4_096
"""The number of cached request lines."""

_PATH: Final = re.compile(
    rf"/v1/topics/([a-zA-Z0-9._-]{{1,{MAX_TOPIC_LENGTH}}})"
    rf"/(?:partitions/({PARTITION.pattern})/(records|batches|offsets)|ingest)"
)
"""The spelling that `Link` and `Location` use. A name that no topic has would only take memory."""


class HotOperation(NamedTuple):
    """What a method and a URL ask for."""

    operation: str
    """The operationId, as it is counted and logged."""
    method: str
    path: str
    topic: str
    partition: int
    """The first for ingest, which chooses one later."""
    call: AppendCall | IngestCall | ReadCall | None
    """The parameters; None for `getOffsets`, which has none."""


class HotOperations(dict[bytes, HotOperation | None]):
    """The operation of each request line, such as `b"GET /v1/topics/…"`: a hit calls no function.

    None for what is not a hot operation in its usual spelling. Belongs to the event loop.
    """

    def __missing__(self, line: bytes) -> HotOperation | None:
        method, _, url = line.partition(b" ")
        operation = _parsed(method.decode(), url)
        if operation is not None:
            if len(self) >= MAX_URLS:
                self.clear()
            self[line] = operation
        return operation


def _parsed(method: str, url: bytes) -> HotOperation | None:
    target, _, query = url.partition(b"?")
    path = target.decode("latin-1")
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    topic, partition, kind = match[1], int(match[2] or 0), match[3] or "ingest"
    operation = _OPERATIONS.get((method, kind))
    if operation is None:
        return None
    call: AppendCall | IngestCall | ReadCall | None = None
    if kind == "offsets":
        if query:
            return None
    else:
        call = _parser_of(method, kind)(query)
        if call is None:
            return None
    return HotOperation(operation, method, path, topic, partition, call)


def _parser_of(
    method: str, kind: str
) -> Callable[[bytes], AppendCall | IngestCall | ReadCall | None]:
    """Return what parses a usual query string."""
    if kind == "ingest":
        return FAST_INGEST_CALLS.get
    return FAST_APPEND_CALLS.get if method == "POST" else partial(fast_read_call, kind)


_OPERATIONS: Final[Mapping[tuple[str, str], str]] = {
    ("POST", "records"): "appendRecords",
    ("POST", "batches"): "appendBatches",
    ("POST", "ingest"): INGEST,
    ("GET", "records"): "readRecords",
    ("GET", "batches"): "readBatches",
    ("GET", "offsets"): "getOffsets",
}
