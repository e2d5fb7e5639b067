"""The ledger: a topic that is the write-ahead log of every commit.

Each task attempt writes a transaction of its own in every partition, and no single marker ends
several transactions. So the ledger holds what is decided before it is carried out:

    attempt     before its first record: the producer id and the topics it is going to write to
    decision    the attempts of a batch that count; of two for one batch the first counts

After a decision is recorded, it is carried out by the driver or by its successor. Attempts that are
not in it are aborted. Each writer has a cursor (an offset of a consumer group), which holds the
last settled batch and the offset in the ledger after it.

A writer is a streaming query, identified by the id in its checkpoint, or a batch write, identified
by its `writeId`. Every request here can be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.documents import (
    GroupOffset,
    LedgerRecord,
    Marks,
    OffsetByTime,
    RecordsPage,
)
from pyspark_tidelog.errors import DataLossError, ServiceError
from pyspark_tidelog.partitions import TopicPartition, by_partition, by_topic
from pyspark_tidelog.records.encode import Producer

NOTHING_SETTLED: Final = -1

GROUP_PREFIX: Final = "tidelog-spark/"

# A decision names every partition of every attempt: a thousand tasks on sixty partitions are 2 MiB.
_CONFIGURATION: Final = {"cleanup.policy": "delete", "max.message.bytes": str(8 << 20)}
_PAGE_BYTES: Final = 8 << 20

_NOT_FOUND: Final = 404
_CREATED: Final = 201


class Cursor(NamedTuple):
    """A writer's last settled batch, and the offset in the ledger after it."""

    offset: int
    batch: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One task attempt's transactions: a producer, and the first offset in each partition."""

    producer: Producer
    first_offsets: Mapping[TopicPartition, int]

    def to_json(self) -> dict[str, Any]:
        """Return the attempt as a decision stores it."""
        return {"producer": list(self.producer), "first_offsets": by_topic(self.first_offsets)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Attempt:
        """Parse the result of `to_json`."""
        return cls(Producer(*document["producer"]), by_partition(document["first_offsets"]))


@dataclass(frozen=True, slots=True)
class Decision:
    """The attempts of a batch that count, which may be none."""

    offset: int
    batch: int
    attempts: Sequence[Attempt]


@dataclass(frozen=True, slots=True)
class Entries:
    """What the ledger holds of a writer from an offset on."""

    begun: dict[Producer, set[str]] = field(default_factory=dict)
    """The topics that each attempt recorded."""
    decisions: dict[tuple[str, int], Decision] = field(default_factory=dict)
    """By writer and batch; the first of several for the same batch."""


class Ledger:
    """The ledger as one writer uses it. Not thread-safe."""

    def __init__(self, client: ServiceClient, topic: str, write_id: str) -> None:
        self._client = client
        self._topic = topic
        self._write_id = write_id
        self._log_path = TopicPartition(topic, 0).path
        group = quote(GROUP_PREFIX + write_id, safe="")
        self._cursor_path = f"/v1/groups/{group}/offsets/{quote(topic)}/0"

    def cursor(self, *, new_begins_at: str = "log_end_offset") -> Cursor:
        """Return the writer's cursor; that of a new writer begins at the ledger's end."""
        found = self._stored_cursor()
        if found is not None:
            return found
        self._create_topic()
        begin = getattr(self._marks(), new_begins_at)
        self._put_cursor(Cursor(begin, NOTHING_SETTLED), {"If-None-Match": "*"})
        found = self._stored_cursor()
        if found is None:
            raise ServiceError(f"the service lost the cursor of {self._write_id} in {self._topic}")
        return found

    def settle(self, decision: Decision) -> None:
        """Record that a decision was carried out, and skip its batch from now on."""
        self._put_cursor(Cursor(decision.offset + 1, decision.batch), {})

    def move(self, offset: int) -> None:
        """Skip what is below an offset from now on."""
        self._put_cursor(Cursor(offset, NOTHING_SETTLED), {})

    def offset_at(self, time_ms: int) -> int:
        """Return the first offset at or after a time, or the ledger's end if there is none."""
        path = f"{self._log_path}/offsets"
        found = self._client.get(f"{path}?timestamp={time_ms}").to(OffsetByTime).offset
        return self._marks().high_watermark if found is None else found

    def _marks(self) -> Marks:
        return self._client.get(f"{self._log_path}/offsets").to(Marks)

    def forget(self) -> None:
        """Delete the cursor of a writer that will not run again."""
        gone = frozenset({204, _NOT_FOUND})
        self._client.send("DELETE", self._cursor_path, expected=gone)

    def begin(self, producer: Producer, topics: Sequence[str]) -> None:
        """Record durably that an attempt is going to write to topics."""
        self._append({"producer": list(producer), "topics": list(topics)})

    def decide(self, batch: int, attempts: Sequence[Attempt]) -> None:
        """Record durably which attempts of a batch count, unless a decision is there already."""
        self._append({"batch": batch, "attempts": [attempt.to_json() for attempt in attempts]})

    def entries(
        self, offset: int, end_offset: int | None = None, *, of_all: bool = False
    ) -> Entries:
        """Return what this writer (or any) recorded; raise DataLossError if it was deleted."""
        found = Entries()
        while True:
            page = self._page(offset, end_offset)
            for record in page.records:
                if of_all or record.key == self._write_id:
                    self._take(found, record)
            if page.next_offset >= page.high_watermark or page.next_offset == end_offset:
                return found
            if page.next_offset <= offset:
                raise ServiceError(f"the pages of the ledger {self._topic} do not end")
            offset = page.next_offset

    def _take(self, found: Entries, record: LedgerRecord) -> None:
        value = record.value
        if "attempts" in value:
            attempts = [Attempt.from_json(one) for one in value["attempts"]]
            key = (str(record.key), int(value["batch"]))
            found.decisions.setdefault(key, Decision(record.offset, key[1], attempts))
        else:
            found.begun.setdefault(Producer(*value["producer"]), set()).update(value["topics"])

    def _page(self, offset: int, end_offset: int | None) -> RecordsPage:
        until = "" if end_offset is None else f"&end_offset={end_offset}"
        answer = self._client.get(
            f"{self._log_path}/records?offset={offset}{until}&max_bytes={_PAGE_BYTES}",
            expected=frozenset({410, 416}),
        )
        if answer.status != 200:
            raise DataLossError(
                f"the ledger {self._topic} no longer holds the entries of {self._write_id} from "
                f"offset {offset} on: look for its open transactions, and begin with a new "
                f"checkpoint or writeId"
            )
        return answer.to(RecordsPage)

    def _append(self, value: Mapping[str, Any]) -> None:
        record = {"key": self._write_id, "value": value}
        self._client.post(
            f"{self._log_path}/records", {"records": [record]}, expected=frozenset({_CREATED})
        )

    def _stored_cursor(self) -> Cursor | None:
        answer = self._client.get(self._cursor_path, expected=frozenset({_NOT_FOUND}))
        if answer.status == _NOT_FOUND:
            return None
        found = answer.to(GroupOffset)
        return Cursor(found.offset, int(json.loads(found.metadata)["batch"]))

    def _put_cursor(self, cursor: Cursor, conditions: Mapping[str, str]) -> None:
        body = {"offset": cursor.offset, "metadata": json.dumps({"batch": cursor.batch})}
        self._client.send(
            "PUT",
            self._cursor_path,
            json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **conditions},
            expected=frozenset({_CREATED, 412}),
        )

    def _create_topic(self) -> None:
        """Create the topic if it does not exist; without the permission, create it beforehand."""
        path = f"/v1/topics/{quote(self._topic)}"
        if self._client.get(path, expected=frozenset({_NOT_FOUND})).status == 200:
            return
        body = json.dumps({"partitions": 1, "config": _CONFIGURATION}).encode()
        # 409: another writer created it meanwhile with another configuration.
        self._client.send("PUT", path, body, expected=frozenset({_CREATED, 409}))
