"""The port that operations work on: logs, documents and group offsets, wherever they are stored.

Only plain values and errors of the engine cross the port, never a file, a lock or a log. What may
need a remote call is a coroutine. Properties are published whole and never wait. Small documents
are what operations have to remember besides records; group offsets are the stored positions of
readers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from prometheus_client.metrics_core import Metric

from app.errors import CursorNotFound
from app.limits.shares import EVERYBODY
from engine.config import LogConfig
from engine.errors import ProducerNotFound, WouldBlock
from engine.log.results import Appended, Fetched, LogTag
from engine.manager.topics import Overrides, Topic
from engine.records.budget import DecodeBudget
from engine.records.header import Codec
from engine.state.producer_entry import ProducerEntry
from engine.state.watermarks import Watermarks
from engine.topic_keys import EffectiveValue
from engine.types import NO_LEADER_EPOCH, Buffer, FetchIsolation, TimestampAndOffset, TopicPartition

Document: TypeAlias = Mapping[str, object]
"""A JSON object."""


class Documents(ABC):
    """JSON objects by name; few, small, and possibly secret. What changes is durable on return."""

    on_changed: Callable[[], None] | None = None
    """Called on the loop after documents have changed, if other services change them too."""

    @abstractmethod
    def all(self) -> Mapping[str, Document]:
        """Return all documents by name; published whole."""

    def named(self, prefix: str) -> dict[str, Document]:
        """Return the documents of one kind: by what follows the prefix of its names."""
        return {
            name.removeprefix(prefix): document
            for name, document in self.all().items()
            if name.startswith(prefix)
        }

    @abstractmethod
    async def change(self, changes: Mapping[str, Document | None]) -> None:
        """Replace, add or (None) remove documents: all of these or none. One call at a time.

        Raises StorageError, and then `all` returns what it did before.
        """

    @abstractmethod
    async def add(self, name: str, document: Document) -> Document:
        """Add a document unless there is one; return the one that is stored. As `change`."""

    @abstractmethod
    def damaged(self, name: str, why: str) -> Exception:
        """Return the error for an unreadable document; it names the place."""


class CursorKey(NamedTuple):
    """The group and the partition of an offset."""

    group: str
    topic: str
    partition: int


class CursorValue(NamedTuple):
    """A group's position: the next offset to read, and its metadata."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the last record read; -1 if unknown."""
    metadata: str = ""
    commit_timestamp: int | None = 0
    """Commit time, in ms; None if the store does not tell."""


class Cursor(NamedTuple):
    """A stored offset, and the ETag that identifies it until it is replaced."""

    value: CursorValue
    etag: str | None
    """None where no change can be made conditional on it."""


class GroupOffsets(ABC):
    """The offsets of all groups. What is stored or deleted is durable when a call returns."""

    has_conditions: ClassVar[bool]
    """Whether nothing changes an offset between its reading and its change; offsets then have
    ETags."""

    @abstractmethod
    async def names(
        self, after: str, *, at_most: int, wanted: Callable[[CursorKey], bool]
    ) -> Sequence[str]:
        """Return the first groups after this name that have a wanted offset, by name."""

    @abstractmethod
    async def of_group(self, group: str) -> Sequence[tuple[CursorKey, CursorValue]]:
        """Return the offsets of a group by topic and partition; none if it does not exist."""

    @abstractmethod
    async def get(self, key: CursorKey) -> Cursor:
        """Return one offset; raises CursorNotFound."""

    @abstractmethod
    async def positions(self, group: str, keys: Sequence[CursorKey]) -> Mapping[CursorKey, int]:
        """Return the offsets of some partitions, as far as they are stored.

        What was decided before the call is counted: it is waited for.
        """

    @abstractmethod
    async def put(
        self, key: CursorKey, decide: Callable[[Cursor | None], CursorValue], maker: str = EVERYBODY
    ) -> tuple[Cursor, bool]:
        """Store what `decide` returns for the present offset; return it, and True for a first one.

        A first one counts for the share of its maker, a principal. With `has_conditions` nothing
        changes the offset in between. Raises what `decide` raises, PolicyViolation beyond the
        limits of groups and offsets, StorageError.
        """

    @abstractmethod
    async def delete(self, key: CursorKey, judge: Callable[[Cursor], None]) -> None:
        """Delete an offset unless `judge` raises, as `put`.

        Raises CursorNotFound, StorageError.
        """

    @abstractmethod
    async def drop_topic(self, topic: str) -> None:
        """Delete every group's offsets in a deleted topic; raises StorageError.

        A crash may leave some of them; creating a topic with that name deletes them first.
        """


def no_such_cursor(key: CursorKey) -> CursorNotFound:
    """Return the error for an offset that is not stored."""
    return CursorNotFound(
        f"group {key.group!r} has stored no offset for {key.topic}-{key.partition}",
        group=key.group,
        topic=key.topic,
        partition=key.partition,
    )


T = TypeVar("T")

Settle: TypeAlias = Callable[[Exception | None], None]
"""Called once, on the loop, when a wait has ended: with None, or with why nothing will come."""


class Run(Protocol):
    """Runs work that takes long on a worker, in its client's turn."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


Sent: TypeAlias = "Callable[[Appended | Exception], None]"
"""Called once, on the loop, with the result of an append, or with why there is none."""


class LogSize(NamedTuple):
    """How large a log is."""

    size_bytes: int
    segments_count: int | None
    """The active segment included; None if the side does not tell."""


class TopicFigures(NamedTuple):
    """How large a topic is, and how recent; None for what the side does not tell."""

    size_bytes: int | None
    """None, too, if a partition is not open."""
    newest_timestamp: int | None
    """None, too, without a record that has a time."""


class StoreTotals(NamedTuple):
    """Sums over the logs that clients may name; None for what the side does not tell."""

    sizes: Mapping[str, int] | None
    """Bytes of each topic's open logs."""
    is_complete: bool
    """Whether all partitions are open."""
    unflushed_bytes: int | None
    late_transaction_partitions: int | None


class ArchiveMarks(NamedTuple):
    """Which part of a log is in the archive, and which on the disk."""

    archived_offset: int | None
    """The end of the archived part, exclusive; None before the archive's first look at the log."""
    local_log_start_offset: int
    """The first offset on the disk: only the archive has those before it."""


LookUp: TypeAlias = Callable[[DecodeBudget], TimestampAndOffset | None]


class RunLookUp(Protocol):
    """Runs a look-up in this process on a thread, within the budget of its request."""

    def __call__(
        self, look_up: LookUp, /, *, in_archive: bool = False
    ) -> Awaitable[TimestampAndOffset | None]:
        """`in_archive`: it may have to wait for the archive."""


class Store(ABC):
    """Where the logs are: in this process, or on other servers."""

    topics: Topics
    groups: GroupOffsets
    documents: Documents

    backend: ClassVar[Literal["local", "kafka"]]
    """What stores the logs."""
    durability: ClassVar[Literal["fsync", "replicated"]]
    """What `acks=all` waits for."""

    follow: Callable[[Hashable], None] | None = None
    """Called when the first reader begins to wait for a log; None if moves come unasked."""

    @abstractmethod
    async def open(self) -> None:
        """Make everything ready; until it returns, requests are refused."""

    @abstractmethod
    async def close(self) -> None:
        """Put everything on disk, and end what runs; `open` need not have been called."""

    @abstractmethod
    def progress(self) -> Mapping[str, int]:
        """Return how far `open` is, for the readiness report."""

    @abstractmethod
    def failure(self) -> str | None:
        """Return why the store takes no more appends; None if it does."""

    @abstractmethod
    def report(self) -> Mapping[str, object]:
        """Return what cannot be used, for /readyz; empty if everything can be."""

    @abstractmethod
    def collect(self) -> Iterable[Metric]:
        """Return the store's own metrics, at each scrape."""

    def commit_buckets(self) -> Sequence[tuple[float, float]] | None:
        """Return how long commits have taken: cumulative counts by upper bound in seconds.

        None if the engine's recorder counts them.
        """
        return None


class Topics(ABC):
    """The topics of a store, and how they change. What is known of them is published whole."""

    @abstractmethod
    def all(self) -> Mapping[str, Topic]:
        """Return all topics by name, internal ones too."""

    @abstractmethod
    def topic(self, name: str) -> Topic:
        """Return one topic; raises TopicNotFound."""

    @abstractmethod
    def effective(self, topic: Topic) -> Mapping[str, EffectiveValue]:
        """Return every configuration value in effect for a topic, with its source."""

    @abstractmethod
    async def look_for(self, name: str) -> None:
        """Bring what is known of a topic up to date, which another service may have changed."""

    @abstractmethod
    def offline(self) -> Sequence[TopicPartition]:
        """Return the unusable partitions for /readyz; empty if all can be used."""

    @abstractmethod
    async def figures(self, topics: Sequence[Topic]) -> list[TopicFigures]:
        """Return size and age of some topics, in their order."""

    @abstractmethod
    async def totals(self) -> StoreTotals:
        """Return the sums over all topics but internal ones."""

    @abstractmethod
    def partition(self, name: str, number: int) -> Partition:
        """Return a handle of one partition; raises TopicNotFound, PartitionNotFound, LogOffline."""

    @abstractmethod
    async def create(self, name: str, partitions: int, overrides: Overrides) -> tuple[Topic, bool]:
        """Create a topic, durably; return it, and False if it was there, just as it is wanted.

        Raises TopicConflict, InvalidTopicName, InvalidConfig, PolicyViolation, StorageError.
        """

    @abstractmethod
    async def ensure_internal(self, name: str, overrides: Overrides) -> None:
        """Create a topic of the service's own, with one partition, unless it exists."""

    @abstractmethod
    async def update(self, name: str, changes: Overrides, partitions: int | None) -> Topic:
        """Apply a merge patch to the configuration of a topic, and add partitions, durably."""

    @abstractmethod
    async def delete(self, name: str) -> None:
        """Delete a topic, durably; raises TopicNotFound."""

    @abstractmethod
    async def allocate_producer(self) -> tuple[int, int]:
        """Return a producer id that no one has used, and its epoch."""


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

    is_local: ClassVar[bool]
    """Whether the log is in this process: then `refresh` has nothing to do."""

    def __init__(
        self, topic_partition: TopicPartition, topic_id: str, identity: Hashable, url_prefix: str
    ) -> None:
        self.topic_partition = topic_partition
        self.topic, self.number = topic_partition
        self.topic_id = topic_id
        self.identity = identity
        """Equal for two handles of one log; changes when the topic is created again."""
        name, number = self.topic.encode(), self.number
        self.path = b"%b/v1/topics/%b/partitions/%d/" % (url_prefix.encode(), name, number)
        """What begins the URLs that responses name; a proxy's prefix included."""
        self.receipt_prefix = b'{"topic":"%b","partition":%d,"base_offset":' % (name, number)
        self.page_prefix = b'{"topic":"%b","partition":%d,"records":' % (name, number)

    # -- where the log is --------------------------------------------------------------------

    @property
    @abstractmethod
    def log_id(self) -> str:
        """Changes whenever an offset may refer to another record."""

    @abstractmethod
    def log_id_at(self, leader_epoch: int) -> str:
        """Return the `log_id` of what was read or written in a leader epoch.

        Answers are rendered with the epoch of their own data: the present `log_id` may be that of
        a truncation since.
        """

    @abstractmethod
    def content_version(
        self, start_offset: int, end_offset: int, fetched: Fetched | None
    ) -> str | None:
        """Return what changes whenever the bytes of a range do, as they were fetched or are now.

        None if only the bytes themselves can tell, and were not fetched, or if nothing can tell any
        more, because compaction has replaced them since. Does not wait.
        """

    @property
    @abstractmethod
    def leader_epoch(self) -> int:
        """The epoch stamped into appended batches."""

    @property
    @abstractmethod
    def log_epoch(self) -> int:
        """The part of `log_id` that a truncation changes."""

    @property
    @abstractmethod
    def tag(self) -> LogTag | None:
        """Identifies this state of the log's end; None where no append can depend on it."""

    @property
    @abstractmethod
    def watermarks(self) -> Watermarks:
        """All four offsets, from one moment."""

    @property
    @abstractmethod
    def recovery_point(self) -> int:
        """A start trusts what is below it."""

    @property
    def archive(self) -> ArchiveMarks | None:
        """Which part of the log is in the archive; None without one."""
        return None

    @property
    @abstractmethod
    def config(self) -> LogConfig:
        """The topic's effective configuration."""

    @property
    def own_codec(self) -> Codec:
        """The codec of the batches that the service builds for this log."""
        stored = self.config.stored_codec
        return Codec.NONE if stored is None else stored[0]

    @abstractmethod
    async def refresh(self) -> None:
        """Bring the properties up to date: those of another server's log are as of its last answer.

        Raises TopicNotFound, LogReplaced, and what says that the server does not answer.
        """

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
        waits: bool = False,
    ) -> Fetched | None:
        """Return what `read` would, without waiting; None if that is not possible.

        A side whose log is elsewhere can only return what it was sent for readers that wait there.
        With `waits` the reader would wait at the log's end: that nothing is there may be as of the
        last answer, if the next one is on its way.
        """

    @abstractmethod
    async def offset_for_time(self, time_ms: int, run: RunLookUp) -> TimestampAndOffset | None:
        """Return the first record at or after a time, below the high watermark.

        Raises DecodeBudgetSpent if `run` sets too small a budget to find it.
        """

    @abstractmethod
    async def offset_appended_since(self, time_ms: int) -> int:
        """Return an offset below which everything was appended before a time, by the clock here.

        It need not be the greatest such offset. The times of records do not matter: clients choose
        them.
        """

    @abstractmethod
    async def max_timestamp(self, run: RunLookUp) -> TimestampAndOffset | None:
        """Return the record with the greatest time; raises as `offset_for_time`."""

    @abstractmethod
    async def size(self) -> LogSize:
        """Return the bytes of all batches, and in how many segments they are."""

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

    @abstractmethod
    async def producers(self) -> Sequence[ProducerEntry]:
        """Return the producers that are not expired, by id."""

    # -- what is added to it, or taken away ---------------------------------------------------

    @abstractmethod
    async def append(
        self,
        make: Callable[[], Buffer],
        *,
        acks: str,
        checked: bool,
        run: Run,
        expected_end_offset: int | None = None,
        expected_tag: LogTag | None = None,
        budget: DecodeBudget | None = None,
    ) -> Appended:
        """Put whole batches at the end of the log: all of them, or none.

        `make` makes them, and is called by `run`. With `acks=all` the caller will wait for the
        commit, which `committed` does. `checked` says that our own builder makes the batches; what
        is not is looked into, within the budget. Raises what `make` and `run` raise,
        ProducerError, PreconditionFailed if the log end is not the expected one, StorageError.
        """

    @abstractmethod
    def append_now(
        self,
        data: Buffer,
        *,
        acks: str,
        checked: bool,
        expected_end_offset: int | None = None,
        expected_tag: LogTag | None = None,
    ) -> Appended:
        """Do what `append` does with small batches without waiting; WouldBlock if that takes one.

        A short cut for a side whose log is in this process: any other raises WouldBlock.
        """

    @abstractmethod
    async def committed(self, end_offset: int) -> None:
        """Wait until everything below `end_offset` is committed.

        Raises StorageError if that has failed, CommitTimedOut if it takes too long, TopicNotFound
        if the topic is deleted meanwhile.
        """

    @abstractmethod
    def when_committed(self, end_offset: int, settle: Settle) -> bool:
        """Have `settle` called when `committed` would return or raise; False if it is committed.

        It may not raise.
        """

    @abstractmethod
    def commit_soon(self) -> None:
        """Begin to commit what was appended now, rather than at the end of the loop's turn."""

    @abstractmethod
    async def delete_records(self, before_offset: int) -> None:
        """Give up the records below an offset, durably; -1 is the high watermark.

        Raises OffsetBeyondLogEnd above the high watermark.
        """

    @abstractmethod
    def abandon(self, error: Exception) -> None:
        """Fail everyone who waits for a commit, and wake the readers: the topic is deleted."""


class RemotePartition(Partition):
    """A partition whose log other servers keep: nothing of it can be done without waiting."""

    __slots__ = ()

    is_local = False
    log_epoch = 0  # elections raise the leader's epoch, and the offsets keep their records

    @property
    def tag(self) -> None:
        """No append can depend on the log's end."""

    def append_now(
        self,
        data: Buffer,  # noqa: ARG002  # as declared, like all of these
        *,
        acks: str,  # noqa: ARG002  # as above
        checked: bool,  # noqa: ARG002  # as above
        expected_end_offset: int | None = None,  # noqa: ARG002  # as above
        expected_tag: LogTag | None = None,  # noqa: ARG002  # as above
    ) -> Appended:
        """Decline: an append takes a request."""
        raise WouldBlock

    def commit_soon(self) -> None:
        """Do nothing: the other servers commit at once."""

    @abstractmethod
    def send(self, data: Buffer, *, acks: str, checked: bool, settle: Sent) -> None:
        """Have whole batches appended, and `settle` called with the result; see `append`."""


def entry_of(
    producers: Iterable[ProducerEntry], topic_partition: TopicPartition, producer_id: int
) -> ProducerEntry:
    """Return one producer of a partition; raises ProducerNotFound."""
    for entry in producers:
        if entry.producer_id == producer_id:
            return entry
    raise ProducerNotFound(
        f"{topic_partition} has no producer {producer_id}", producer_id=producer_id
    )
