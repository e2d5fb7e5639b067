"""The port that operations work on: a partition, whichever side keeps its log.

What crosses the port are plain values of the engine and its errors: never a file, a lock or a log.
What a side may have to ask somebody else for is a coroutine. The values of a partition are each
published whole, and looking at them never waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence

from engine.config import LogConfig
from engine.log.results import Fetched, LogTag
from engine.state.watermarks import Watermarks
from engine.types import FetchIsolation, TimestampAndOffset, TopicPartition


class Partition(ABC):
    """One partition: where its log is, what it holds, and the names that answers give it."""

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
        """Equal for two handles of one log, and another once the topic has been made anew."""
        name, number = self.topic.encode(), self.number
        self.path = b"/v1/topics/%b/partitions/%d/" % (name, number)
        self.receipt_prefix = b'{"topic":"%b","partition":%d,"base_offset":' % (name, number)
        self.page_prefix = b'{"topic":"%b","partition":%d,"records":' % (name, number)

    # -- where the log is --------------------------------------------------------------------

    @property
    @abstractmethod
    def log_id(self) -> str:
        """Changes whenever an offset might come to mean another record."""

    @property
    @abstractmethod
    def leader_epoch(self) -> int:
        """The epoch stamped into what is appended."""

    @property
    @abstractmethod
    def tag(self) -> LogTag:
        """What tells this state of the log's end from every other."""

    @property
    @abstractmethod
    def watermarks(self) -> Watermarks:
        """All four offsets, from one moment."""

    @property
    @abstractmethod
    def recovery_point(self) -> int:
        """Below it a start believes what it finds."""

    @property
    @abstractmethod
    def config(self) -> LogConfig:
        """The topic's configuration in force."""

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

        `holder` is who is served in turn where many wait. Raises OffsetBelowLogStart,
        OffsetBeyondLogEnd, StoredDataCorrupt, Overloaded, StorageError.
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
        """Return what `read` would, without waiting; None if that takes a wait.

        A short cut for a side whose log is in this process: any other returns None.
        """

    @abstractmethod
    async def offset_for_time(self, time_ms: int) -> TimestampAndOffset | None:
        """Return the first record at or after a time, below the high watermark."""

    @abstractmethod
    async def max_timestamp(self) -> TimestampAndOffset | None:
        """Return the record with the greatest time."""

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
