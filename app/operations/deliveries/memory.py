"""The deliveries of one topic: its table, and the deliveries that are being written."""

from __future__ import annotations

import asyncio

from app.operations.deliveries.table import DeliveryTable, Entry


class TopicMemory:
    """The deliveries of one topic."""

    __slots__ = ("epochs", "loading", "pending", "running", "table", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: str) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.table: DeliveryTable | None = None
        """None until it is rebuilt from the log."""
        self.epochs: dict[int, int] = {}
        """The leader epoch of each partition. A truncation changes it: then the table is wrong."""
        self.running: dict[bytes, asyncio.Event] = {}
        """The claimed deliveries, and what is set when the claim is released."""
        self.pending: list[tuple[Entry, int]] = []
        """What was written while there was no table, each with its leader epoch."""
        self.loading: asyncio.Task[None] | None = None

    def note(self, entry: Entry, leader_epoch: int) -> None:
        """Remember what was written under this epoch."""
        if self.table is None:
            self.pending.append((entry, leader_epoch))
        elif self.epochs.setdefault(entry.partition, leader_epoch) == leader_epoch:
            self.table.add(entry.pack())
        else:
            self.unload()
            self.pending.append((entry, leader_epoch))

    def unload(self) -> None:
        """Have the table rebuilt."""
        self.table = None

    def publish(self, table: DeliveryTable, epochs: dict[int, int]) -> None:
        """Use this table, unless a log was truncated and written to while it was rebuilt."""
        if any(epoch > epochs.get(entry.partition, epoch) for entry, epoch in self.pending):
            return
        for entry, epoch in self.pending:
            is_current = epochs.setdefault(entry.partition, epoch) == epoch
            known = table.find(entry.digest)
            if is_current and all(one.base_offset != entry.base_offset for one in known):
                table.add(entry.pack())
        self.pending.clear()
        self.epochs, self.table = epochs, table
