"""One log of the cluster: its offsets and its reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from app.store.kafka.marks import Marks
from app.store.port import RunLookUp, Settle
from engine.log.results import Fetched
from engine.state.producer_entry import ProducerEntry
from engine.types import FetchIsolation, TimestampAndOffset, TopicPartition


class KafkaLog(ABC):
    """What is known of one log, and what is read from it; one for each topic id and partition."""

    def __init__(self, topic_partition: TopicPartition, topic_id: str, marks: Marks) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.marks = marks

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """The bytes of all batches, as last known."""

    @property
    @abstractmethod
    def segments_count(self) -> int:
        """How many segments there are, as last known."""

    @abstractmethod
    async def refresh(self) -> None: ...

    @abstractmethod
    async def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: FetchIsolation,
        end_offset: int | None,
        minimum_one_batch: bool,
        holder: str,
    ) -> Fetched: ...

    @abstractmethod
    async def offset_for_time(self, time_ms: int, run: RunLookUp) -> TimestampAndOffset | None: ...

    @abstractmethod
    async def offset_appended_since(self, time_ms: int) -> int: ...

    @abstractmethod
    async def max_timestamp(self, run: RunLookUp) -> TimestampAndOffset | None: ...

    @abstractmethod
    async def extent_bytes(
        self, start_offset: int, end_offset: int, isolation: FetchIsolation
    ) -> int: ...

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
    ) -> Sequence[tuple[int, int, int]]: ...

    @abstractmethod
    async def producers(self) -> Sequence[ProducerEntry]: ...

    @abstractmethod
    async def delete_records(self, before_offset: int) -> None: ...

    @abstractmethod
    async def committed(self, end_offset: int) -> None: ...

    @abstractmethod
    def when_committed(self, end_offset: int, settle: Settle) -> bool: ...

    @abstractmethod
    def abandon(self, error: Exception) -> None: ...
