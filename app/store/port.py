"""The port that operations work on: a partition, wherever its log is stored.

Only plain values and errors of the engine cross the port, never a file, a lock or a log. What may
need a remote call is a coroutine. Properties are published whole and never wait.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TypeAlias

from engine.config import LogConfig
from engine.log.results import Fetched, LogTag
from engine.records.budget import DecodeBudget
from engine.state.watermarks import Watermarks
from engine.types import FetchIsolation, TimestampAndOffset, TopicPartition

LookUp: TypeAlias = Callable[[DecodeBudget], TimestampAndOffset | None]

RunLookUp: TypeAlias = Callable[[LookUp], Awaitable[TimestampAndOffset | None]]
"""Runs a look-up in this process on a thread, within the budget of its request."""


class Partition(ABC):
    """One partition: its offsets, its records, and the names that answers give it."""

    __slots__ = (
        "identity",
        "number",
        "page_prefix",
        "path",
        "receipt_prefix",
        "topic",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, topic_id: str, identity: Hashable) -> None:
        self.topic_partition = topic_partition
        self.topic, self.number = topic_partition
        self.topic_id = topic_id
        self.identity = identity
        """Equal for two handles of one log; changes when the topic is created again."""
        name, number = self.topic.encode(), self.number
        self.path = b"/v1/topics/%b/partitions/%d/" % (name, number)
        self.receipt_prefix = b'{"topic":"%b","partition":%d,"base_offset":' % (name, number)
        self.page_prefix = b'{"topic":"%b","partition":%d,"records":' % (name, number)

    # -- where the log is --------------------------------------------------------------------

    @property
    @abstractmethod
    def log_id(self) -> str:
        """Changes whenever an offset may refer to another record."""

    @property
    @abstractmethod
    def leader_epoch(self) -> int:
        """The epoch stamped into appended batches."""

    @property
    @abstractmethod
    def tag(self) -> LogTag:
        """Identifies this state of the log's end."""

    @property
    @abstractmethod
    def watermarks(self) -> Watermarks:
        """All four offsets, from one moment."""

    @property
    @abstractmethod
    def recovery_point(self) -> int:
        """A start trusts what is below it."""

    @property
    @abstractmethod
    def config(self) -> LogConfig:
        """The topic's effective configuration."""

    # -- what it holds -----------------------------------------------------------------------

    @abstractmethod
    async def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        end_offset: int | None = None,
        minimum_one_batch: bool = True,
        holder: str = "",
    ) -> Fetched:
        """Return whole batches from the one that holds `offset` on, below the reader's bound.

        `holder` is served in turn with others. Raises OffsetBelowLogStart, OffsetBeyondLogEnd,
        StoredDataCorrupt, Overloaded, StorageError.
        """

    @abstractmethod
    def read_now(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        end_offset: int | None = None,
        minimum_one_batch: bool = True,
    ) -> Fetched | None:
        """Return what `read` would, without waiting; None if that is not possible.

        Only a side whose log is in this process can; any other returns None.
        """

    @abstractmethod
    async def offset_for_time(self, time_ms: int, run: RunLookUp) -> TimestampAndOffset | None:
        """Return the first record at or after a time, below the high watermark.

        Raises DecodeBudgetSpent if `run` sets too small a budget to find it.
        """

    @abstractmethod
    async def max_timestamp(self, run: RunLookUp) -> TimestampAndOffset | None:
        """Return the record with the greatest time; raises as `offset_for_time`."""

    @abstractmethod
    async def extent_bytes(
        self, start_offset: int, end_offset: int, isolation: FetchIsolation
    ) -> int:
        """Return the bytes of the batches that hold offsets from the start to below the end.

        Raises OffsetBelowLogStart, and OffsetBeyondLogEnd above what such a reader may see.
        """

    @abstractmethod
    async def splits(
        self,
        start_offset: int,
        end_offset: int,
        isolation: FetchIsolation,
        *,
        parts: int,
        max_offsets: int | None,
        at_most: int,
    ) -> Sequence[tuple[int, int, int]]:
        """Return the range in `parts` of about equal size: start, exclusive end and bytes of each.

        None has more than `max_offsets`. Of more than `at_most` parts only the first so many are
        returned. Raises as `extent_bytes`.
        """
