"""Batches as JSON, kept in memory for readers that want them again.

Several readers of a log read the same batches, each from its own place. A batch never changes: the
log's id and the whole header, with the checksum that is verified at every read, identify its bytes
for good. So its text is made once, whatever page it is a part of.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final, NamedTuple, TypeAlias

from engine.records.batch import BatchView
from engine.records.header import HEADER_BYTES

ENTRY_BYTES: Final = 512
"""Upper bound for the memory of an entry besides its text."""

MOST_SHARE: Final = 8
"""A text larger than this part of the memory is not kept."""

BatchKey: TypeAlias = tuple[str, bytes, str | None, bool, bool]
"""The log's id, the batch's header, and the options of the view."""


class RenderedBatches:
    """Texts of batches, within `max_bytes`; the least recently used go first. Thread-safe.

    A text is kept when it is made for the second time among texts that could be kept together: one
    reader of a long log leaves nothing here, even if it begins again and again.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.size_bytes = 0
        self._texts: OrderedDict[BatchKey, bytes] = OrderedDict()
        self._seen: set[int] = set()
        """Batches whose text was made lately."""
        self._seen_before: set[int] = set()
        """Those whose text was made before these."""
        self._seen_bytes = 0
        self._lock = Lock()

    def get(self, key: BatchKey) -> bytes | None:
        """Return the text of a batch."""
        with self._lock:
            text = self._texts.get(key)
            if text is not None:
                self._texts.move_to_end(key)
            return text

    def is_wanted(self, key: BatchKey, size_bytes: int) -> bool:
        """Whether to put this text, which was not found and has been made."""
        size_bytes += ENTRY_BYTES
        if MOST_SHARE * size_bytes > self._max_bytes:
            return False
        known = hash(key)
        with self._lock:
            if known in self._seen or known in self._seen_before:
                return True
            self._seen_bytes += size_bytes
            if self._seen_bytes > self._max_bytes // 2:
                self._seen_before, self._seen, self._seen_bytes = self._seen, set(), size_bytes
            self._seen.add(known)
            return False

    def put(self, key: BatchKey, text: bytes) -> None:
        """Keep a text that is wanted."""
        with self._lock:
            if key in self._texts:  # another reader was faster
                return
            self._texts[key] = text
            self.size_bytes += len(text) + ENTRY_BYTES
            while self.size_bytes > self._max_bytes:
                _, oldest = self._texts.popitem(last=False)
                self.size_bytes -= len(oldest) + ENTRY_BYTES


class LogTexts(NamedTuple):
    """The texts of one log's batches."""

    rendered: RenderedBatches
    log_id: str

    def key_of(
        self, batch: BatchView, encoding: str | None, *, as_text: bool, is_ndjson: bool
    ) -> BatchKey:
        """Return what identifies the text of a batch that was verified."""
        header = bytes(batch.buffer[:HEADER_BYTES])
        return (self.log_id, header, encoding, as_text, is_ndjson)
