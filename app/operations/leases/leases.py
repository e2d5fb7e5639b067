"""The leases of all groups: claims are appended to one topic, and applied as they lie in it.

Every service that uses the same store reads the same claims in the same order, so all of them agree
on who holds what. A claim is answered when it is committed and applied; before that nothing of it
counts. A start reads the topic when leases are first asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from app.errors import LeaseLost
from app.limits.shares import Makers, is_beyond_share
from app.operations.leases.claims import (
    Claim,
    State,
    claim_record,
    decode_records,
    state_record,
)
from app.operations.leases.group import GroupLeases, Renewal
from app.settings import Settings
from app.store.port import Partition, Run, Store
from engine.clock import Clock
from engine.errors import PolicyViolation, WouldBlock
from engine.records.builder import NewRecord, build_batch
from engine.types import Buffer, TopicPartition
from schemas.leases import MAX_TTL_MS

_LOG = logging.getLogger(__name__)

LEASES_TOPIC: Final = "__tidelog_leases"
"""Clients see no topic whose name begins like this."""

_STATE_EVERY_MS: Final = MAX_TTL_MS
"""A group's state is written at its first claim so long after the last one."""

CONFIGURATION: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact,delete",
    "index.interval.bytes": "512",  # what was just written is read back: without a scan for it
    "max.message.bytes": str(16 << 20),
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": str(6 * MAX_TTL_MS),
    "retention.ms": str(7 * 24 * 3_600_000),
    "segment.bytes": str(4 << 20),
}
"""Claims after a group's last state stay until every lease of theirs has ended: a state is at most
two of the longest leases old while any lease lasts. The time of a claim is the log's."""

SKEW_MS: Final = 60_000
"""The clock of the log may be so far behind that of this service."""

_READ_BYTES: Final = 1 << 20
_INLINE_BYTES: Final = 64 << 10
"""More is decoded by a worker."""


class Leases:
    """The leases of all groups. Belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock, *, store: Store, run: Run) -> None:
        """`run` runs work on a reader thread."""
        self._settings = settings
        self._clock = clock
        self._store = store
        self._run = run
        self._groups: dict[str, GroupLeases] = {}
        self._state_ms: dict[str, int] = {}
        """The time of each group's last state; of its first claim, if it has none."""
        self._time_ms = -1
        """That of the last claim."""
        self._topic_id = ""
        self._next_offset = 0
        """Everything below has been applied."""
        self._reading = asyncio.Lock()
        self._makers = Makers[tuple[str, str]](
            "max_lease_workers", settings.max_lease_workers, settings.max_share_percent
        )
        self._made: set[tuple[str, str]] = set()
        self._group_makers: dict[str, str] = {}

    async def claim(
        self, group: str, worker: str, renewal: Renewal | None, maker: str
    ) -> GroupLeases:
        """Append a claim; return the group's leases once it is applied.

        Raises PolicyViolation beyond max_lease_workers, and what an append raises.
        """
        if not await self._is_made():
            await self._store.topics.ensure_internal(LEASES_TOPIC, CONFIGURATION)
        partition = await self._caught_up()
        if renewal is not None:
            self._ensure_room(group, worker, maker)
            self._ensure_partitions(group, renewal, maker)
        now_ms = self._clock.now_ms()
        claim = claim_record(group, worker, renewal, now_ms)
        records = [*self._due_state(group, now_ms), claim]
        batch = build_batch(records)
        known_offset = self._next_offset
        try:
            appended = partition.append_now(batch, acks="all", checked=True)
        except WouldBlock:
            appended = await partition.append(
                lambda: batch, acks="all", checked=True, run=self._run
            )
        await partition.committed(appended.last_offset + 1)
        if appended.base_offset < known_offset:
            self._topic_id = ""  # the cluster lost claims that had been applied: read all again
        await self._read_to(partition, appended.last_offset + 1)
        return self._groups.get(group) or GroupLeases()

    async def of_group(self, group: str) -> GroupLeases:
        """Return the leases of a group as of all claims that are committed; not to be changed."""
        if await self._is_made():
            await self._caught_up()
        return self._groups.get(group) or GroupLeases()

    def ensure_held(self, group: str, place: TopicPartition, fence: int) -> None:
        """Raise LeaseLost if somebody else holds the partition, or nothing is known of the hold.

        Judges by what `of_group` has read last.
        """
        leases = self._groups.get(group)
        if leases is not None and leases.has_given(place, fence):
            return
        hold = None if leases is None else leases.holds.get(place)
        who = "it is not known" if hold is None else f"worker {hold.worker!r} has it"
        raise LeaseLost(
            f"the lease of {place} with fence {fence} is over, and {who}: renew, and go on with "
            "the partitions of the answer",
            group=group,
            topic=place.topic,
            partition=place.partition,
        )

    @property
    def workers_count(self) -> int:
        """The workers whose leases have not ended, of all groups."""
        now_ms = self._clock.now_ms()
        return sum(
            one.deadline_ms > now_ms
            for leases in self._groups.values()
            for one in leases.workers.values()
        )

    # -- limits ------------------------------------------------------------------------------

    def _ensure_room(self, group: str, worker: str, maker: str) -> None:
        """Raise PolicyViolation if the worker is one too many; count it for its maker."""
        leases = self._groups.get(group)
        if leases is not None and worker in leases.workers:
            return
        limit = self._settings.max_lease_workers
        count = self.workers_count
        if count >= limit:
            raise PolicyViolation(
                f"max_lease_workers ({limit}) is reached",
                limit="max_lease_workers",
                limit_value=limit,
            )
        if len(self._groups) >= limit:
            self._forget_groups()
        for key in [key for key in self._made if not self._is_live(*key)]:
            self._makers.remove(key)
            self._made.discard(key)
        self._makers.ensure_share(maker, count)
        self._makers.add(maker, (group, worker))
        self._made.add((group, worker))

    def _ensure_partitions(self, group: str, renewal: Renewal, maker: str) -> None:
        """Raise PolicyViolation if the claim shares out more partitions than there is room for."""
        added = self._groups.get(group, GroupLeases()).adds(renewal.topics)
        if not added:
            return
        limit, percent = self._settings.max_lease_partitions, self._settings.max_share_percent
        total = self._partitions_count
        if total + added > limit:
            self._forget_groups()
            total = self._partitions_count
        # A group counts for whoever began it since the service started.
        begun = self._group_makers.get(group, maker)
        own = sum(
            leases.partitions_count
            for one, leases in self._groups.items()
            if self._group_makers.get(one) == begun
        )
        if total + added > limit:
            raise PolicyViolation(
                f"max_lease_partitions ({limit}) would be exceeded: {total} are leased, and these "
                f"topics have {added} more",
                limit="max_lease_partitions",
                limit_value=limit,
            )
        if begun and own and is_beyond_share(own + added, limit - total - added, percent):
            raise PolicyViolation(
                f"{begun} has leased {own} of max_lease_partitions ({limit}), and {added} more are "
                f"beyond its share (max_share_percent: {percent})",
                limit="max_share_percent",
                limit_value=percent,
            )
        self._group_makers[group] = begun

    @property
    def _partitions_count(self) -> int:
        return sum(one.partitions_count for one in self._groups.values())

    def _is_live(self, group: str, worker: str) -> bool:
        leases = self._groups.get(group)
        one = None if leases is None else leases.workers.get(worker)
        return one is not None and one.deadline_ms > self._clock.now_ms()

    def _forget_groups(self) -> None:
        """Forget the groups without a lease: a commit with one of their fences is refused.

        A claim that follows would have the same effect: it is later than any lease of theirs.
        """
        time_ms = max(self._time_ms, self._clock.now_ms() - SKEW_MS)
        for group in [one for one, it in self._groups.items() if it.is_over(time_ms)]:
            del self._groups[group]
            self._state_ms.pop(group, None)
            self._group_makers.pop(group, None)

    # -- reading -----------------------------------------------------------------------------

    async def _is_made(self) -> bool:
        topics = self._store.topics
        if LEASES_TOPIC not in topics.all():
            await topics.look_for(LEASES_TOPIC)  # another service may have made it
        return LEASES_TOPIC in topics.all()

    async def _caught_up(self) -> Partition:
        """Apply all claims that are committed now; return the log that they are in."""
        partition = self._store.topics.partition(LEASES_TOPIC, 0)
        await partition.refresh()
        await self._read_to(partition, partition.watermarks.high_watermark)
        return partition

    async def _read_to(self, partition: Partition, end_offset: int) -> None:
        """Apply all claims below an offset that is committed."""
        if self._next_offset >= end_offset and self._topic_id == partition.topic_id:
            return
        async with self._reading:
            if (
                self._topic_id != partition.topic_id
                # It was down for so long that retention has removed claims.
                or self._next_offset < partition.watermarks.log_start_offset
            ):
                await self._load(partition, end_offset)
            await partition.committed(end_offset)  # so each read below brings something
            while self._next_offset < end_offset:
                entries, next_offset = await self._page(partition, self._next_offset)
                for entry in entries:
                    self._apply(entry)
                self._next_offset = next_offset

    async def _load(self, partition: Partition, end_offset: int) -> None:
        """Read the whole topic: every group is its last state, and the claims after it."""
        offset = partition.watermarks.log_start_offset
        states: dict[str, State] = {}
        claims: list[Claim] = []
        while offset < end_offset:
            entries, offset = await self._page(partition, offset)
            claims += [one for one in entries if isinstance(one, Claim)]
            states.update({one.group: one for one in entries if isinstance(one, State)})
        groups = await self._run(lambda: replayed(states, claims))
        self._groups = groups
        self._time_ms = max((one.time_ms for one in groups.values()), default=-1)
        self._state_ms = dict.fromkeys(groups, -1)  # so the next start has less to read
        self._topic_id, self._next_offset = partition.topic_id, offset

    async def _page(self, partition: Partition, offset: int) -> tuple[Sequence[Claim | State], int]:
        """Return what the records from an offset on say, and the offset to go on with."""
        fetched = partition.read_now(offset, max_bytes=_READ_BYTES)
        if fetched is None:
            fetched = await partition.read(offset, max_bytes=_READ_BYTES)
        data, limit_bytes = fetched.data, self._settings.max_decompressed_batch_bytes
        if len(data) <= _INLINE_BYTES:
            entries = _entries(data, offset, limit_bytes)
        else:
            entries = await self._run(lambda: _entries(data, offset, limit_bytes))
        return entries, fetched.next_offset

    def _apply(self, entry: Claim | State) -> None:
        if isinstance(entry, State):
            # What it says is known here: all claims before it have been applied.
            self._state_ms[entry.group] = self._time_ms
            return
        leases = self._groups.setdefault(entry.group, GroupLeases())
        leases.apply(entry.worker, entry.renewal, offset=entry.offset, time_ms=entry.time_ms)
        self._time_ms = max(self._time_ms, entry.time_ms)
        self._state_ms.setdefault(entry.group, self._time_ms)

    def _due_state(self, group: str, now_ms: int) -> Sequence[NewRecord]:
        """Return the record of the group's state if its last one is old."""
        leases = self._groups.get(group)
        if leases is None or self._time_ms - self._state_ms[group] < _STATE_EVERY_MS:
            return []
        return [state_record(State(group, self._next_offset, leases.dump()), now_ms)]


def _entries(data: Buffer, from_offset: int, limit_bytes: int) -> Sequence[Claim | State]:
    """Return what records say; those that say nothing are logged."""
    entries: list[Claim | State] = []
    for entry in decode_records(data, from_offset, limit_bytes):
        if isinstance(entry, ValueError):
            _LOG.error("%s has a record that is not a claim: %s", LEASES_TOPIC, entry)
        else:
            entries.append(entry)
    return entries


def replayed(states: Mapping[str, State], claims: Sequence[Claim]) -> dict[str, GroupLeases]:
    """Return every group after its claims from its last state on."""
    groups: dict[str, GroupLeases] = {}
    for group, known in states.items():
        try:
            groups[group] = GroupLeases.load(known.dump)
        except (msgspec.MsgspecError, LookupError) as error:
            _LOG.error("%s has a state that cannot be read: %s", LEASES_TOPIC, error)
    for one in claims:
        state = states.get(one.group)
        if state is not None and one.offset < state.before_offset:
            continue
        leases = groups.setdefault(one.group, GroupLeases())
        leases.apply(one.worker, one.renewal, offset=one.offset, time_ms=one.time_ms)
    return groups
