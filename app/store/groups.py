"""The port to group offsets: the stored positions of readers, wherever they are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from app.errors import CursorNotFound
from app.limits.makers import EVERYBODY
from engine.types import NO_LEADER_EPOCH


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
