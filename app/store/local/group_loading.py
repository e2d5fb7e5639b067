"""Reads one partition of `__consumer_offsets`: the last value of every key.

A broker's consumers may have stored offsets inside transactions. Those count from the commit marker
on, and then in log order, as in Kafka's `OffsetMetadataManager`.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple, TypeAlias

from app.store.groups import Cursor, CursorKey, CursorValue
from app.store.local.group_records import UnreadableCursor, decode_key, decode_value
from engine.log.log import Log
from engine.records.batch import BatchView
from engine.records.control import parse_end_marker
from engine.records.scan import iter_headers

_LOG = logging.getLogger(__name__)

READ_BYTES: Final = 4 * 1024 * 1024

_CURSOR_KEYS: Final = (b"\x00\x00", b"\x00\x01")
"""Key versions of group offsets; records with other keys are skipped unread."""

_Latest: TypeAlias = dict[bytes, tuple[int, bytes | None]]
"""The offset and the value of the last record of each key."""


class Stored(NamedTuple):
    """A group offset and the record that stores it: partition and offset in the offsets topic."""

    value: CursorValue | None
    """None: a deletion that is not on disk yet."""
    log_partition: int
    record_offset: int

    @property
    def cursor(self) -> Cursor | None:
        """The offset as the port shows it; its ETag lasts as long as the topic exists."""
        if self.value is None:
            return None
        return Cursor(self.value, f'"{self.log_partition}-{self.record_offset}"')


def load_cursors(log: Log, *, limit_bytes: int) -> dict[CursorKey, Stored]:
    """Return the group offsets in one log of the topic; raises StorageError, CorruptBatch.

    Reads the whole log, a few MiB at a time, and keeps one value per key; compaction keeps the log
    small. A record that matches no version of the schema is skipped and logged.
    """
    number = log.topic_partition.partition
    cursors: dict[CursorKey, Stored] = {}
    for raw_key, (offset, raw_value) in _replay(log, limit_bytes).items():
        try:
            key = decode_key(raw_key)
            if key is not None and raw_value is not None:
                cursors[key] = Stored(decode_value(raw_value), number, offset)
        except UnreadableCursor as error:
            _LOG.warning("%s, offset %d: %s", log.topic_partition, offset, error)
    return cursors


def _replay(log: Log, limit_bytes: int) -> _Latest:
    replay = _Replay(limit_bytes)
    offset = log.watermarks.log_start_offset
    while offset < log.watermarks.high_watermark:
        fetched = log.reader.read(offset, max_bytes=READ_BYTES)
        assert fetched is not None, "only a read of cached bytes may find nothing"
        for position, _ in iter_headers(fetched.data):
            replay.add(BatchView(fetched.data, position))
        offset = fetched.next_offset
    return replay.settled


class _Replay:
    """The values so far, and those of open transactions."""

    def __init__(self, limit_bytes: int) -> None:
        self.settled: _Latest = {}
        self._pending: dict[int, _Latest] = {}
        self._limit_bytes = limit_bytes

    def add(self, batch: BatchView) -> None:
        header = batch.header
        if header.is_control:
            self._end(batch)
            return
        latest = self.settled
        if header.is_transactional:
            latest = self._pending.setdefault(header.producer_id, {})
        for record in batch.records(limit_bytes=self._limit_bytes):
            key = record.key
            if key is not None and key.startswith(_CURSOR_KEYS):
                latest[key] = record.offset, record.value

    def _end(self, batch: BatchView) -> None:
        marker = parse_end_marker(batch)
        if marker is None:
            return
        written = self._pending.pop(batch.header.producer_id, {})
        if marker.is_abort:
            return
        for key, latest in written.items():
            known = self.settled.get(key)
            if known is None or known[0] < latest[0]:
                self.settled[key] = latest
