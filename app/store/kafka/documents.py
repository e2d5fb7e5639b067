"""Documents in a compacted topic: one record each, its value the JSON; a tombstone removes it.

Every replica of the service follows the topic, so each has the same documents soon after a change.
The records of one change are one batch. They may be secret: the topic's ACLs have to keep other
clients away from it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13.response import FetchResponse, PartitionData
from kio.schema.list_offsets.v7.response import ListOffsetsResponse

from app.settings import Settings
from app.store.kafka.appends import PartitionAppends, split
from app.store.kafka.cluster import RETRY_SECONDS, Cluster
from app.store.kafka.connection import uuid_of
from app.store.kafka.errors import Moved, NoAnswer, ensure_done
from app.store.kafka.read.requests import (
    EARLIEST,
    Position,
    fetch_request,
    fetched_logs,
    list_offsets_request,
    listed_logs,
)
from app.store.kafka.topics import KafkaTopics
from app.store.port import Document, Documents
from engine.clock import Clock
from engine.config import LogConfig
from engine.errors import StoredDataCorrupt
from engine.records.batch import BatchView
from engine.records.builder import NewRecord, build_batch
from engine.records.scan import iter_headers
from engine.types import Buffer, FetchIsolation, TopicPartition

_LOG = logging.getLogger(__name__)

CREATE_ONLY: Final = "create-only"
"""Header of a record that counts only if there is no document of that name before it."""
MAX_FETCH_BYTES: Final = 1 << 20
MAX_WAIT_MS: Final = 5_000
"""Longest wait of a fetch for the next change."""


class KafkaDocuments(Documents):
    """The documents of one topic with one partition. Belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        *,
        cluster: Cluster,
        topics: KafkaTopics,
        appends: PartitionAppends,
        clock: Clock,
        read_local: Callable[[], Mapping[str, Document]],
    ) -> None:
        """`read_local` returns what a data directory has, for a topic that has nothing yet."""
        self._name = settings.kafka_documents_topic
        self._cluster = cluster
        self._topics = topics
        self._appends = appends
        self._clock = clock
        self._read_local = read_local
        self._documents: Mapping[str, Document] = MappingProxyType({})
        self._topic_id = ""
        self._next_offset = 0
        self._moved = asyncio.Condition()
        """Notified when `_next_offset` has moved."""
        self._following: asyncio.Task[None] | None = None
        self._restoring: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Read the documents; create the topic if it is missing, and then follow it."""
        await self._topics.ensure_internal(self._name, {"cleanup.policy": "compact"})
        while not await self._cluster.retry(self._step_now, self._cluster.request_timeout_ms):
            pass
        self._following = asyncio.create_task(self._follow())
        if not self._documents:
            local = await asyncio.to_thread(self._read_local)
            if local:
                _LOG.info("moving %d documents to the topic %s", len(local), self._name)
                await self._write(local, ((CREATE_ONLY, b""),))

    async def close(self) -> None:
        tasks = [*self._restoring, *([self._following] if self._following else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def all(self) -> Mapping[str, Document]:
        return self._documents

    async def change(self, changes: Mapping[str, Document | None]) -> None:
        """Append the changes, and wait until this replica has read them back."""
        await self._write(changes, ())

    async def add(self, name: str, document: Document) -> Document:
        """Append a document that counts only if it is the first; return the one that does."""
        await self._write({name: document}, ((CREATE_ONLY, b""),))
        return self._documents[name]

    async def _write(
        self, changes: Mapping[str, Document | None], headers: Sequence[tuple[str, bytes | None]]
    ) -> None:
        now_ms = self._clock.now_ms()
        records: list[NewRecord] = [
            (now_ms, name.encode(), None if one is None else msgspec.json.encode(one), headers)
            for name, one in changes.items()
        ]
        batches = split(build_batch(records), LogConfig(), checked=True)
        appended = await self._appends.append(batches, "all")
        async with asyncio.timeout(self._cluster.request_timeout_ms / 1000), self._moved:
            await self._moved.wait_for(lambda: self._next_offset > appended.last_offset)

    def damaged(self, name: str, why: str) -> Exception:
        return StoredDataCorrupt(
            f"document {name} in topic {self._name} is unreadable: {why}; delete it with a "
            "tombstone for that key",
            file=self._name,
            position=0,
            offset=0,
        )

    # -- following the topic ------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            try:
                await self._step(MAX_WAIT_MS)
            except (Moved, NoAnswer):
                await asyncio.sleep(RETRY_SECONDS)
                self._cluster.refresh_soon()
            except Exception:  # noqa: BLE001  # the next attempt may succeed
                _LOG.exception("the documents in the topic %s cannot be read", self._name)
                await asyncio.sleep(MAX_WAIT_MS / 1000)

    async def _step_now(self) -> bool:
        return await self._step(0)

    async def _step(self, max_wait_ms: int) -> bool:
        """Read and apply what comes next; return whether that was everything."""
        fetched = await self._fetch(max_wait_ms)
        if fetched.error_code is ErrorCode.offset_out_of_range:
            self._next_offset = await self._log_start()
            return False
        ensure_done(fetched.error_code)
        await self._apply(bytes(fetched.records or b""))
        return self._next_offset >= int(fetched.high_watermark)

    async def _fetch(self, max_wait_ms: int) -> PartitionData:
        topic_id = self._topics.topic(self._name).topic_id
        if topic_id != self._topic_id:
            self._topic_id, self._next_offset = topic_id, 0
            self._documents = MappingProxyType({})
        leader = self._cluster.leader(self._name, 0)
        log = (uuid_of(topic_id), 0)
        request = fetch_request(
            (Position(log, self._next_offset, -1, MAX_FETCH_BYTES),),
            isolation=FetchIsolation.HIGH_WATERMARK,
            max_bytes=MAX_FETCH_BYTES,
            max_wait_ms=max_wait_ms,
        )
        response = await self._cluster.send(leader.node, request, FetchResponse, lane="documents")
        found = fetched_logs(response).get(log)
        if found is None:
            raise Moved(ErrorCode.unknown_topic_id)
        return found

    async def _log_start(self) -> int:
        """Ask where the log begins: a broker that refuses an offset does not say it."""
        log = TopicPartition(self._name, 0)
        leader = self._cluster.leader(*log)
        request = list_offsets_request([(log, -1)], EARLIEST)
        response = await self._cluster.send(leader.node, request, ListOffsetsResponse)
        found = listed_logs(response).get(log)
        if found is None:
            raise Moved(ErrorCode.unknown_topic_or_partition)
        ensure_done(found.error_code)
        return int(found.offset)

    async def _apply(self, data: bytes) -> None:
        """Publish the documents after these batches."""
        documents = dict(self._documents)
        next_offset = self._next_offset
        lost: dict[str, Document] = {}
        for position, header in iter_headers(data):
            for record in () if header.is_control else BatchView(data, position).records():
                if record.offset >= self._next_offset and record.key is not None:
                    name = bytes(record.key).decode(errors="replace")
                    is_late = any(key == CREATE_ONLY for key, _ in record.headers)
                    if is_late and name in documents:
                        # Compaction would keep this record, and not the one that counts.
                        lost[name] = documents[name]
                    else:
                        self._put(documents, name, record.value)
            next_offset = max(next_offset, header.next_offset)
        if next_offset == self._next_offset:
            return
        is_changed = documents != self._documents
        self._documents = MappingProxyType(documents)
        if is_changed and self.on_changed is not None:
            await self._cluster.refresh()  # a document may belong to a new topic
            self.on_changed()
        async with self._moved:
            self._next_offset = next_offset
            self._moved.notify_all()
        if lost and self._following is not None:
            task = asyncio.create_task(self._restore(lost))
            self._restoring.add(task)
            task.add_done_callback(self._restoring.discard)

    def _put(self, documents: dict[str, Document], name: str, value: Buffer | None) -> None:
        if value is None:
            documents.pop(name, None)
            return
        try:
            documents[name] = msgspec.json.decode(value, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _LOG.error("%s", self.damaged(name, str(error)))  # the sentence says it

    async def _restore(self, documents: Mapping[str, Document]) -> None:
        """Write documents again after those that came too late; every replica does."""
        try:
            await self.change(documents)
        except Exception:  # noqa: BLE001  # another replica may succeed
            _LOG.exception("a document could not be written again")
