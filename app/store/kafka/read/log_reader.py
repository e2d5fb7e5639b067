"""Reads one log of the cluster: on demand, or what a shared fetch has just brought.

Equal reads of one turn of the event loop are one read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13.response import PartitionData

from app.store.kafka.connection import Leader, uuid_of
from app.store.kafka.errors import Moved
from app.store.kafka.marks import Marks
from app.store.kafka.read.page import Page, Wanted, response_marks
from app.store.kafka.read.reads import Reads, retrieve_error
from app.store.kafka.read.requests import LogKey, Position, ensure_read
from engine.errors import LogReplaced
from engine.log.read.aborted import has_transactions
from engine.log.read.fetch import ensure_in_range
from engine.log.results import Fetched, ReadEnd
from engine.state.watermarks import Watermarks
from engine.types import Buffer, FetchIsolation, TopicPartition

NO_EPOCH: Final = -1


class _News(NamedTuple):
    """What a shared fetch has brought, from an offset to the high watermark or a limit."""

    offset: int
    records: Buffer
    marks: Watermarks


class LogReader:
    """The read side of one log. Belongs to the event loop."""

    def __init__(
        self,
        reads: Reads,
        topic_partition: TopicPartition,
        topic_id: str,
        *,
        identity: Hashable,
        marks: Marks,
        on_replaced: Callable[[], None],
    ) -> None:
        """`on_replaced` is called when committed records are gone, after an unclean election."""
        self.identity = identity
        self.topic_partition = topic_partition
        self.key: LogKey = (uuid_of(topic_id), topic_partition.partition)
        self.marks = marks
        self._topic_id = topic_id
        self._reads = reads
        self._on_replaced = on_replaced
        self._verified_epoch = NO_EPOCH
        """The leader epoch in which the leader is known to have all committed records."""
        self._running: dict[Wanted, asyncio.Task[Fetched]] = {}
        """The reads of this turn of the loop."""
        self._news: _News | None = None
        self.is_fetched = False
        """Whether a shared fetch waits for records at the end."""

    # -- where the log is --------------------------------------------------------------------

    def leader(self) -> Leader:
        """Return the leader; raises TopicNotFound, LogReplaced, NoAnswer without one."""
        cluster = self._reads.cluster
        leader = cluster.leader(*self.topic_partition)
        topic_id = cluster.metadata.topics[self.topic_partition.topic].topic_id
        if topic_id != self._topic_id:
            raise LogReplaced(
                f"topic {self.topic_partition.topic} was deleted and created again",
                expected_log_id=f"{self._topic_id}.0",
                log_id=f"{topic_id}.0",
            )
        return leader

    def is_verified(self, leader: Leader) -> bool:
        """Whether this leader is known to have all committed records."""
        return leader.epoch == self._verified_epoch

    def doubt(self) -> None:
        """Verify the leader again."""
        self._verified_epoch = NO_EPOCH

    async def verified_leader(self) -> Leader:
        """Return the leader once it has all committed records: after an election it may not yet.

        Raises what `leader` raises, and Moved until it has.
        """
        leader = self.leader()
        if not self.is_verified(leader):
            await self._ask(leader)
        return leader

    async def refresh(self) -> None:
        """Learn all offsets as they are now."""
        await self._reads.cluster.retry(self._refresh, self._reads.timeout_ms)

    async def _refresh(self) -> None:
        await self._ask(self.leader())

    async def _ask(self, leader: Leader) -> None:
        known = self.marks.watermarks.high_watermark
        offsets = await self._reads.offsets.answer(leader.node, self.topic_partition, leader.epoch)
        ensure_read(offsets.error_code)
        if offsets.high.offset < known:
            self._on_replaced()
            raise LogReplaced(
                f"{self.topic_partition} has lost committed records in an unclean election",
                log_id=f"{self._topic_id}.0",
            )
        self.marks.saw(
            log_start_offset=offsets.start.offset,
            high_watermark=offsets.high.offset,
            last_stable_offset=offsets.stable.offset,
            leader_epoch=leader.epoch,
        )
        self._verified_epoch = leader.epoch

    def saw(self, data: PartitionData) -> None:
        """Publish the offsets of a response."""
        self.marks.saw(
            log_start_offset=data.log_start_offset,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
        )

    # -- reads -------------------------------------------------------------------------------

    async def read(self, wanted: Wanted) -> Fetched:
        """Return whole batches; raises as `Partition.read`, and BackendUnavailable."""
        task = self._running.get(wanted)
        if task is None:
            loop, reads = asyncio.get_running_loop(), self._reads
            attempt = partial(self._read, wanted)
            task = loop.create_task(reads.cluster.retry(attempt, reads.timeout_ms))
            task.add_done_callback(retrieve_error)
            self._running[wanted] = task
            loop.call_soon(self._running.pop, wanted)
        return await asyncio.shield(task)

    async def _read(self, wanted: Wanted) -> Fetched:
        leader = await self.verified_leader()
        if not wanted.has_data:
            await self._ask(leader)
            return self._nothing(wanted)
        async with self._reads.memory.hold(leader.node, wanted.max_bytes):
            return await self._fetch(wanted, leader)

    def _nothing(self, wanted: Wanted) -> Fetched:
        marks = self.marks.watermarks
        ensure_in_range(wanted.offset, marks)
        ended_by = ReadEnd.MAX_BYTES
        if wanted.end_offset is not None and wanted.offset >= wanted.end_offset:
            ended_by = ReadEnd.END_OFFSET
        elif wanted.offset >= marks.bound(wanted.isolation).offset:
            ended_by = ReadEnd.LOG_BOUND
        epoch = self.marks.leader_epoch
        return Fetched(b"", None, wanted.offset, marks, epoch, ended_by, None)

    async def _fetch(self, wanted: Wanted, leader: Leader) -> Fetched:
        """Fetch until a bound is reached: a broker's response may end with its segment."""
        page = Page(wanted)
        while page.ended_by is None:
            position = Position(self.key, page.next_offset, leader.epoch, max(1, page.left_bytes))
            data = await self._reads.fetch(leader.node, position, wanted.isolation)
            if data.error_code is ErrorCode.offset_out_of_range:
                await self._ask(leader)
                ensure_in_range(wanted.offset, self.marks.watermarks)
                raise Moved(data.error_code)  # it has come or gone meanwhile
            ensure_read(data.error_code)
            self.saw(data)
            page.add(data, position.max_bytes)
        return page.fetched(self.marks)

    # -- what a shared fetch brings ------------------------------------------------------------

    def end_position(self, max_bytes: int) -> Position:
        """Return where a shared fetch goes on."""
        end = self.marks.watermarks.high_watermark
        return Position(self.key, end, self._verified_epoch, max_bytes)

    @property
    def has_news(self) -> bool:
        """Whether a shared fetch has just brought records."""
        return self._news is not None

    def bring(self, offset: int, data: PartitionData) -> None:
        """Offer what a shared fetch has brought to the readers that wait there, for this turn."""
        if data.records:
            self._news = _News(offset, data.records, response_marks(data))
        self.saw(data)

    def forget(self) -> None:
        """End the turn of `bring`."""
        self._news = None

    def read_now(self, wanted: Wanted, *, waits: bool) -> Fetched | None:
        """Return what `read` would, if a shared fetch has just brought it, or waits for it."""
        if not wanted.has_data:
            return None
        news = self._news
        if news is None or news.offset != wanted.offset:
            bound = self.marks.watermarks.bound(wanted.isolation).offset
            is_awaited = waits and self.is_fetched and wanted.offset == bound
            return self._nothing(wanted) if is_awaited else None
        page = Page(wanted)
        page.take(news.records, news.marks)
        if page.ended_by is None:
            return None  # there is more than the shared fetch brought
        if wanted.isolation is FetchIsolation.TXN_COMMITTED:
            marks = news.marks
            if marks.last_stable_offset < marks.high_watermark or has_transactions(page.data):
                return None  # the broker says what may be seen
        return page.fetched(self.marks)
