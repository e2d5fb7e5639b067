"""The deliveries of one topic: its table, and the deliveries that are being written."""

from __future__ import annotations

import asyncio

from app.operations.deliveries.table import DeliveryTable, Entry


class TopicMemory:
    """The deliveries of one topic."""

    __slots__ = (
        "epochs",
        "following",
        "loading",
        "pending",
        "positions",
        "running",
        "table",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: str) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.table: DeliveryTable | None = None
        """None until it is rebuilt from the log."""
        self.epochs: dict[int, int] = {}
        """The log epoch of each partition. A truncation changes it: then the table is wrong."""
        self.positions: dict[int, int] = {}
        """By partition, for logs to which other services write too: what is below was read."""
        self.running: dict[bytes, asyncio.Event] = {}
        """The claimed deliveries, and what is set when the claim is released."""
        self.pending: list[tuple[Entry, int]] = []
        """What was written while there was no table, each with its log epoch."""
        self.loading: asyncio.Task[None] | None = None
        self.following: asyncio.Task[None] | None = None
        """Reads what other services write."""

    def note(self, entry: Entry, log_epoch: int) -> None:
        """Remember what was written in this epoch, unless it was read already."""
        if self.table is None:
            self.pending.append((entry, log_epoch))
        elif self.epochs.setdefault(entry.partition, log_epoch) != log_epoch:
            self.unload()
            self.pending.append((entry, log_epoch))
        elif entry.base_offset >= self.positions.get(entry.partition, 0):
            self.table.add(entry.pack())

    def found(self, entry: Entry) -> None:
        """Remember what was read from a log, unless it was noted already."""
        if self.table is not None and not _is_in(self.table, entry):
            self.table.add(entry.pack())

    def unload(self) -> None:
        """Have the table rebuilt."""
        self.table = None
        self.stop()

    def stop(self) -> None:
        """Follow the logs no more."""
        if self.following is not None:
            self.following.cancel()
            self.following = None

    def publish(self, table: DeliveryTable, epochs: dict[int, int]) -> None:
        """Use this table, unless a log was truncated and written to while it was rebuilt."""
        if any(epoch > epochs.get(entry.partition, epoch) for entry, epoch in self.pending):
            return
        for entry, epoch in self.pending:
            is_current = epochs.setdefault(entry.partition, epoch) == epoch
            if is_current and not _is_in(table, entry):
                table.add(entry.pack())
        self.pending.clear()
        self.epochs, self.table = epochs, table


def _is_in(table: DeliveryTable, entry: Entry) -> bool:
    place = (entry.partition, entry.base_offset)
    return any((one.partition, one.base_offset) == place for one in table.find(entry.digest))
