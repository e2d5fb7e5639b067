"""A service in memory that answers what Spark asks, for tests of the connector alone.

The real service has its own tests with the connector; this one can do what a real one must not:
break off, refuse, lose records, make a topic again under its name.
"""

from __future__ import annotations

import json
import re
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.kafka_batches import SentRecord, encode


@dataclass
class Reply:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    """Close the connection after so many bytes of the body; None sends all of it."""
    stall: threading.Event | None = None
    """Wait for this, rather than close, after what is sent of the body."""

    @classmethod
    def of_json(cls, status: int, **document: object) -> Reply:
        return cls(status, json.dumps(document).encode())


@dataclass
class MemoryLog:
    start_offset: int = 0
    end_offset: int = 0
    stable_offset: int | None = None
    """The last stable offset, where a transaction is open."""
    times: dict[int, int] = field(default_factory=dict)
    """Look-ups by time, and the offsets they find."""
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)

    def append(self, records: list[SentRecord], *, codec: int = 0) -> None:
        self.append_raw(encode(records, codec=codec, base_offset=self.end_offset), len(records))

    def append_raw(self, batch: bytes, offsets_count: int) -> None:
        base = self.end_offset
        self.end_offset = base + offsets_count
        stamped = struct.pack(">q", base) + batch[8:]
        self.batches.append((base, self.end_offset, stamped))


class LogService:
    """Topics in memory; `fault` may answer a request instead, or return None to let it pass."""

    def __init__(self) -> None:
        self.topics: dict[str, list[MemoryLog]] = {}
        self.topic_ids: dict[str, str] = {}
        self.requests: list[str] = []
        self.documents: list[dict[str, Any]] = []
        """Those of the POSTs, in order."""
        self.authorizations: list[str | None] = []
        self.fault: Callable[[str], Reply | None] = lambda _path: None
        self.url = ""

    def make(self, topic: str, *, partitions: int = 1, topic_id: str = "first") -> list[MemoryLog]:
        self.topics[topic] = [MemoryLog() for _ in range(partitions)]
        self.topic_ids[topic] = topic_id
        return self.topics[topic]

    def answer(self, path: str) -> Reply:
        self.requests.append(path)
        address = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        if address.path == "/v1/topics":
            return self._page(query.get("page_token", ""))
        found = re.fullmatch(r"/v1/topics/([^/]+)/splits", address.path)
        if found:
            return self._splits(found[1], self.documents[-1])
        found = re.fullmatch(r"/v1/topics/([^/]+)/(offsets|partitions)", address.path)
        if found and "timestamp" in query:
            return self._found(found[1], int(query["timestamp"]))
        if found:
            return self._marks(found[1])
        found = re.fullmatch(r"/v1/topics/([^/]+)/partitions/(\d+)/batches", address.path)
        if not found or found[1] not in self.topics:
            return Reply.of_json(404, code="topic_not_found")
        numbers = {k: int(v) for k, v in query.items() if v.isdecimal()}
        return self._batches(found[1], int(found[2]), numbers)

    def _page(self, after: str) -> Reply:
        """One topic per page: clients that only read the first page fail."""
        names = [name for name in sorted(self.topics) if name > after]
        token = names[0] if len(names) > 1 else None
        shown = [{"topic": name} for name in names[:1]]
        return Reply.of_json(200, topics=shown, next_page_token=token)

    def _found(self, topic: str, timestamp: int) -> Reply:
        partitions = [
            {"partition": number, "offset": log.times.get(timestamp)}
            for number, log in enumerate(self.topics[topic])
        ]
        return Reply.of_json(200, topic=topic, partitions=partitions)

    def _splits(self, topic: str, wanted: dict[str, Any]) -> Reply:
        """A split a batch, however many were asked for."""
        splits: list[dict[str, int]] = []
        for number in wanted["partitions"]:
            start, end = wanted["start"][str(number)], wanted["end"][str(number)]
            inside = [
                base for base, _, _ in self.topics[topic][number].batches if start < base < end
            ]
            splits += (
                {"partition": number, "start_offset": first, "end_offset": last}
                for first, last in pairwise([start, *inside, end])
            )
        return Reply.of_json(200, topic=topic, splits=splits)

    def _marks(self, topic: str) -> Reply:
        if topic not in self.topics:
            return Reply.of_json(404, code="topic_not_found")
        partitions = [
            {
                "partition": number,
                "log_start_offset": log.start_offset,
                "high_watermark": log.end_offset,
                "log_end_offset": log.end_offset,
                "last_stable_offset": (
                    log.end_offset if log.stable_offset is None else log.stable_offset
                ),
                "log_id": f"{self.topic_ids[topic]}.0",
                "size_bytes": sum(len(raw) for _, _, raw in log.batches),
            }
            for number, log in enumerate(self.topics[topic])
        ]
        return Reply.of_json(200, topic=topic, partitions=partitions)

    def _batches(self, topic: str, partition: int, query: dict[str, int]) -> Reply:
        log = self.topics[topic][partition]
        offset = query["offset"]
        if offset < log.start_offset:
            return Reply.of_json(410, log_start_offset=log.start_offset)
        if offset > log.end_offset:
            return Reply.of_json(416, code="offset_beyond_log_end")
        body, next_offset = b"", offset
        for base, end, raw in log.batches:
            if end <= offset or base >= query["end_offset"]:
                continue
            if body and len(body) + len(raw) > query["max_bytes"]:
                break
            body += raw
            next_offset = end
        log_id = f"{self.topic_ids[topic]}.0"
        return Reply(200, body, {"Log-Next-Offset": str(next_offset), "Log-Id": log_id})


@contextmanager
def serving(service: LogService) -> Iterator[LogService]:
    """Serve on a loopback port of the system's choice until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            service.documents.append(json.loads(self.rfile.read(length)))
            self.do_GET()

        def do_GET(self) -> None:
            service.authorizations.append(self.headers.get("Authorization"))
            reply = service.fault(self.path) or service.answer(self.path)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body[: reply.cut_after])
            if reply.stall is not None:
                reply.stall.wait()
            if reply.cut_after is not None:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
