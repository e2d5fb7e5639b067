"""A Kafka cluster on loopback: each node answers the protocol from logs in memory.

What a broker rarely does is said beforehand: an error code of its next answer, a connection that it
closes, a request that it holds, a response that ends with a segment, a new leader.
"""

from __future__ import annotations

import asyncio
import io
import struct
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

from anyio.lowlevel import checkpoint
from kio.index import load_request_schema, load_response_schema
from kio.schema.api_versions.v0.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32

from tests.support import fake_kafka_groups, fake_kafka_reads, fake_kafka_topics
from tests.support.fake_kafka_reads import NOW
from tests.support.fake_log import FakeLog

VERSIONS: Final = {
    0: 9, 1: 13, 2: 7, 3: 12, 8: 8, 9: 8, 10: 4, 16: 4, 17: 1, 18: 0, 19: 7, 20: 6, 21: 2, 22: 4,
    32: 4, 35: 4, 36: 1, 37: 3, 44: 1, 47: 0, 61: 0,
}  # fmt: skip
"""By API key: the one version that is answered."""

ANSWERS: Final = {
    "fetch": fake_kafka_reads.fetch,
    "list_offsets": fake_kafka_reads.list_offsets,
    "describe_producers": fake_kafka_reads.describe_producers,
    "delete_records": fake_kafka_reads.delete_records,
    "describe_log_dirs": fake_kafka_reads.describe_log_dirs,
    "produce": fake_kafka_topics.produce,
    "create_topics": fake_kafka_topics.create_topics,
    "delete_topics": fake_kafka_topics.delete_topics,
    "create_partitions": fake_kafka_topics.create_partitions,
    "describe_configs": fake_kafka_topics.describe_configs,
    "incremental_alter_configs": fake_kafka_topics.incremental_alter_configs,
    "init_producer_id": fake_kafka_topics.init_producer_id,
    "find_coordinator": fake_kafka_groups.find_coordinator,
    "offset_commit": fake_kafka_groups.offset_commit,
    "offset_fetch": fake_kafka_groups.offset_fetch,
    "offset_delete": fake_kafka_groups.offset_delete,
    "list_groups": fake_kafka_groups.list_groups,
}
"""By the name of the API; metadata is answered below."""


class FakeKafka:
    """The nodes, and what they have. Belongs to the event loop."""

    def __init__(self, nodes: int = 1) -> None:
        self.node_ids = range(1, nodes + 1)
        self.ports: dict[int, int] = {}
        self.topics: dict[str, tuple[uuid.UUID, list[FakeLog]]] = {}
        self.late: deque[dict[str, tuple[uuid.UUID, list[FakeLog]]]] = deque()
        """The topics of the next answers with metadata: brokers learn of changes later."""
        self.groups: dict[str, dict[tuple[str, int], tuple[int, int, str]]] = {}
        self.coordinator = 1
        self.requests: Counter[str] = Counter()
        """By the name of the request."""
        self.errors: defaultdict[str, deque[ErrorCode]] = defaultdict(deque)
        """The codes of the next answers, by the name of the request."""
        self.late_errors: deque[ErrorCode] = deque()
        """The codes of the next batches that are appended."""
        self.closes: Counter[str] = Counter()
        """How many of the next requests are answered by closing the connection."""
        self.holds: dict[str, asyncio.Event] = {}
        """Requests that wait until the event is set."""
        self.silent: set[str] = set()
        """Requests whose answers leave out what was asked for."""
        self.sizes = True
        """Whether the sizes of logs are shown."""
        self.moved = asyncio.Event()
        self.waiting_fetches = 0
        self.sasl: deque[tuple[ErrorCode, bytes]] = deque()
        """The code and the bytes of the next answers to SaslAuthenticate."""
        self.configs: dict[str, dict[str, str | None]] = {}
        """The own values of each topic."""
        self.producer_ids = 0
        self.append_time: datetime | None = None
        """The time of appends to a topic with LogAppendTime."""
        self.record_errors: list[str] = []
        """What is said of the first record of each batch."""
        self.loses_answers: Counter[str] = Counter()
        """How many of the next requests are done without an answer: the connection is closed."""
        self._servers: dict[int, asyncio.Server] = {}
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def addresses(self) -> str:
        """The brokers as a setting."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def create(self, name: str, partitions: int = 1, leader: int = 1) -> list[FakeLog]:
        """Create a topic, or create it again."""
        logs = [FakeLog(leader) for _ in range(partitions)]
        self.topics[name] = (uuid.uuid4(), logs)
        return logs

    def move(self) -> None:
        """Answer the fetches that wait."""
        self.moved.set()
        self.moved = asyncio.Event()

    def append(self, log: FakeLog, *batches: bytes | bytearray | memoryview) -> None:
        """Append, as another client does."""
        for batch in batches:
            log.append(batch)
        self.move()

    # -- connections ---------------------------------------------------------------------------

    async def open(self) -> None:
        for node in self.node_ids:
            await self.start(node)

    async def start(self, node: int) -> None:
        """Start a node, with the port it had."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.add(writer)
            try:
                while True:
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    await self._answer(node, await reader.readexactly(size), writer)
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass
            finally:
                self._writers.discard(writer)
                writer.close()

        port = self.ports.get(node, 0)
        server = await asyncio.start_server(serve, "127.0.0.1", port)
        self.ports[node] = server.sockets[0].getsockname()[1]
        self._servers[node] = server

    async def stop(self, node: int) -> None:
        """Stop a node: nothing listens there, and its connections are closed."""
        self._servers.pop(node).close()
        for writer in list(self._writers):
            if writer.get_extra_info("sockname")[1] == self.ports[node]:
                writer.close()

    async def close(self) -> None:
        for node in list(self._servers):
            await self.stop(node)

    async def _answer(self, node: int, frame: bytes, writer: asyncio.StreamWriter) -> None:
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        schema = load_request_schema(key, VERSIONS[key] if key == 18 else version)
        name = schema.__name__.removesuffix("Request")
        self.requests[name] += 1
        if self.closes[name]:
            self.closes[name] -= 1
            raise ConnectionError
        if name in self.holds:
            await self.holds[name].wait()
        if key == 18:
            response: Any = self._api_versions()
        else:
            _, position = entity_reader(schema.__header_schema__)(frame, 0)
            request, _ = entity_reader(schema)(frame, position)
            made = load_response_schema(key, version)
            module = __import__(made.__module__, fromlist=["x"])
            api = api_key_map[key]
            if api in ANSWERS:
                response = await ANSWERS[api](self, request, module, node)
            else:
                response = getattr(self, f"_{api}")(request, module)
        if response is None:
            return
        buffer = io.BytesIO()
        header = type(response).__header_schema__
        entity_writer(header)(buffer, header(correlation_id=i32(correlation_id)))
        entity_writer(type(response))(buffer, response)
        data = buffer.getvalue()
        writer.write(len(data).to_bytes(4, "big") + data)
        await writer.drain()

    def next_error(self, name: str) -> ErrorCode:
        codes = self.errors[name]
        return codes.popleft() if codes else ErrorCode.none

    def log(self, topic: uuid.UUID | str, number: int, node: int) -> FakeLog | ErrorCode:
        """The log, or what a broker says that does not lead it."""
        for name, (topic_id, logs) in self.topics.items():
            if topic in {name, topic_id} and number < len(logs):
                log = logs[number]
                return log if log.leader == node else ErrorCode.not_leader_or_follower
        if isinstance(topic, str):
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.unknown_topic_id

    def asked(
        self, name: str, topic: uuid.UUID | str, number: int, node: int, epoch: int = -1
    ) -> tuple[FakeLog, ErrorCode]:
        code = self.next_error(name)
        log = self.log(topic, number, node)
        if isinstance(log, ErrorCode):
            return FakeLog(node), code if code is not ErrorCode.none else log
        if code is ErrorCode.none and -1 < epoch < log.epoch:
            code = ErrorCode.fenced_leader_epoch
        return log, code

    # -- answers -------------------------------------------------------------------------------

    @staticmethod
    def _api_versions() -> Any:
        return ApiVersionsResponse(
            error_code=ErrorCode.none,
            api_keys=tuple(
                ApiVersion(api_key=i16(key), min_version=i16(0), max_version=i16(version))
                for key, version in VERSIONS.items()
            ),
        )

    def _sasl_handshake(self, request: Any, r: Any) -> Any:
        code = self.next_error("SaslHandshake")
        return r.SaslHandshakeResponse(error_code=code, mechanisms=(request.mechanism,))

    def _sasl_authenticate(self, _request: Any, r: Any) -> Any:
        code, data = self.sasl.popleft() if self.sasl else (ErrorCode.none, b"")
        message = None if code is ErrorCode.none else "wrong"
        return r.SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=data)

    def _metadata(self, _request: Any, r: Any) -> Any:
        topics = self.late.popleft() if self.late else self.topics
        return r.MetadataResponse(
            throttle_time=NOW,
            brokers=tuple(
                r.MetadataResponseBroker(node_id=one, host="127.0.0.1", port=i32(self.ports[one]))
                for one in self._servers
            ),
            topics=tuple(
                r.MetadataResponseTopic(
                    error_code=ErrorCode.none,
                    name=name,
                    topic_id=topic_id,
                    partitions=tuple(
                        r.MetadataResponsePartition(
                            error_code=ErrorCode.leader_not_available
                            if log.leader < 0
                            else ErrorCode.none,
                            partition_index=i32(number),
                            leader_id=i32(log.leader),
                            leader_epoch=i32(log.epoch),
                        )
                        for number, log in enumerate(logs)
                    ),
                )
                for name, (topic_id, logs) in topics.items()
            ),
        )


@asynccontextmanager
async def fake_kafka(nodes: int = 1) -> AsyncIterator[FakeKafka]:
    """A cluster that is closed at the end."""
    fake = FakeKafka(nodes)
    await fake.open()
    try:
        yield fake
    finally:
        await fake.close()


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(30):
        while not condition():
            await checkpoint()
