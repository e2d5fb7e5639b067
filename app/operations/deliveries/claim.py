"""A delivery, and the right to write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

from app.codecs.delivery_headers import (
    DIGEST_BYTES,
    FINGERPRINT_BYTES,
    ID_HEADER,
    STATE_HEADER,
    Seal,
    State,
)
from app.http.answers import Body
from app.operations.deliveries.table import Entry, TopicMemory
from app.store.port import Partition
from engine.log.results import Appended, LogTag
from engine.records.builder import HeaderList, NewRecord, RecordColumns

Note: TypeAlias = Callable[[TopicMemory, Entry, int], None]
"""Remembers what was written in an epoch of the log."""


class Delivery(NamedTuple):
    """What identifies a delivery to a topic."""

    topic: str
    topic_id: str
    scope: bytes
    """Ids of different scopes are different."""
    id: bytes
    fingerprint: bytes
    """The same id with another one is refused."""
    header: str | None = None
    """The header of a key that a client chose; None for an id of a sender."""

    def digest(self, secret: bytes) -> bytes:
        """Return what identifies the delivery in the log; clients cannot compute it.

        Of two deliveries with the same 128 bits, the second would be taken for a repetition.
        """
        named = b"%b %d %b%b" % (self.topic_id.encode(), len(self.scope), self.scope, self.id)
        return blake2b(named, digest_size=DIGEST_BYTES, key=secret).digest()


def delivery_of(
    partition: Partition, scope: bytes, delivery_id: bytes, fingerprint: bytes
) -> Delivery:
    """Return the delivery with this id to the topic of a partition."""
    return Delivery(partition.topic, partition.topic_id, scope, delivery_id, fingerprint)


def fingerprint_of(question: bytes, body: Body) -> bytes:
    """Return the fingerprint of a request: its target and options, and its body."""
    hashed = blake2b(b"%d " % len(question), digest_size=FINGERPRINT_BYTES)
    hashed.update(question)
    hashed.update(body)
    return hashed.digest()


class Claim:
    """The right to write one delivery, until `close`. Belongs to the event loop."""

    __slots__ = (
        "_accepted_ms",
        "_delivery",
        "_digest",
        "_memory",
        "_note",
        "_seal",
        "known",
        "partitions",
    )

    def __init__(
        self,
        note: Note,
        memory: TopicMemory,
        delivery: Delivery,
        seal: Seal,
        *,
        known: Mapping[int, Entry],
        accepted_ms: int,
    ) -> None:
        self._note = note
        self._memory = memory
        self._delivery = delivery
        self._digest = delivery.digest(seal.secret)
        self._seal = seal
        self._accepted_ms = accepted_ms
        self.known = known
        """The parts that are in the log, by partition."""
        self.partitions = next(iter(known.values())).partitions if known else 0
        """The partitions that the topic had the first time; 0 if it was not asked, or never."""

    def repeated(self, partition: Partition) -> Appended | None:
        """Return what the first request appended to the partition; None if it appended nothing.

        Wait for its commit before you answer, whatever the repetition's acks are.
        """
        part = self.known.get(partition.number)
        if part is None:
            return None
        marks = partition.watermarks
        return Appended(
            part.base_offset,
            part.base_offset + part.records_count - 1,
            part.records_count,
            part.timestamp,
            True,
            marks,
            partition.tag or LogTag(partition.leader_epoch, marks.log_end_offset, 0),
        )

    @property
    def sticky_partition(self) -> int:
        """The partition for records without a key: a repetition gets the same."""
        return int.from_bytes(self._digest[8:]) % max(1, self.partitions)

    def choose_among(self, partitions: int) -> int:
        """Return the number of partitions among which the server chooses.

        It is that of the first time, even if the topic has more now: a repetition must meet the
        same partitions.
        """
        self.partitions = self.partitions or partitions
        return self.partitions

    def mark(self, records: list[NewRecord] | RecordColumns) -> None:
        """Put the delivery's headers on the first of the records for one partition."""
        delivery = self._delivery
        state = State(
            self._digest, delivery.fingerprint, self._accepted_ms, len(records), self.partitions
        )
        key = records.keys[0] if isinstance(records, RecordColumns) else records[0][1]
        value = records.values[0] if isinstance(records, RecordColumns) else records[0][2]
        sealed = state.pack(self._seal, key, value)
        headers: HeaderList = [(ID_HEADER, delivery.id), (STATE_HEADER, sealed)]
        if isinstance(records, RecordColumns):
            first, *others = records.headers or [[]] * len(records)
            records.headers = [first + headers, *others]
        else:
            timestamp, key, value, own = records[0]
            records[0] = (timestamp, key, value, [*own, *headers])

    def written(self, partition: Partition, appended: Appended) -> None:
        """Note a part that is in the log now; one that no server acknowledged is found there."""
        if appended.base_offset < 0:
            return
        entry = Entry(
            self._digest,
            self._delivery.fingerprint,
            appended.base_offset,
            appended.timestamp,
            appended.records_count,
            self._accepted_ms // 1000,
            partition.number,
            self.partitions,
        )
        is_local = partition.is_local
        epoch = appended.tag.leader_epoch if is_local else partition.log_epoch
        self._note(self._memory, entry, epoch)

    def close(self) -> None:
        """Release the claim."""
        released = self._memory.running.pop(self._digest, None)
        if released is not None:
            released.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
