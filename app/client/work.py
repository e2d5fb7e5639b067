"""A worker of a group: it shares the partitions of a topic and hands their records on in batches.

The order is kept within each partition: one batch at a time is handed on, and the group's offset is
committed before the next. A batch that fails is tried again after a pause; other partitions go on
meanwhile. The lease is renewed by the thread that calls `run`, one thread waits for records, and
`parallel` threads hand them on.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import msgspec

from app.client.connection import Connection, Request, group_path, json_request, topic_path
from app.client.failures import Failure, Refused, Unreachable

_PAGE_BYTES: Final = 1 << 20
_POLL_MS: Final = 2_000
"""How long a request waits for records."""
_SHORT_POLL_MS: Final = 100
"""The same while batches are handed on: partitions that are done join the next one."""
_MOST_POLLED: Final = 500
"""Partitions of one request; half of what the service takes by default."""
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 60.0
_PASSED_OVER_S: Final = 5.0
"""How often what a filter passes over is committed, so that nobody scans it again."""
_SHOWN: Final = 20
"""Partitions that are named when the worker's share changes."""


class Phase(Enum):
    """What happens with a partition."""

    IDLE = "idle"
    """Nothing of it is here: it is asked for records."""
    READY = "ready"
    """Records of it wait for a thread, or for the pause after a failure."""
    RUNNING = "running"
    DRAINED = "drained"
    """Nothing was left of it, and nobody waits for more."""


@dataclass(slots=True, eq=False)
class Share:
    """A partition that the worker holds. Changed under the worker's lock."""

    partition: int
    fence: int
    offset: int
    """The next record to hand on."""
    phase: Phase = Phase.IDLE
    is_revoking: bool = False
    is_lost: bool = False
    """Whether it is held no more: what runs is to be stopped, and nothing is committed."""
    lines: list[tuple[int, bytes]] = field(default_factory=list)
    """Offsets and records that are here and not handed on."""
    read_end: int = 0
    """End of what was read for `lines`, exclusive: nothing between them is for this worker."""
    committed: int = 0
    """The offset that the group has stored, as far as this worker knows."""
    committed_at: float = 0.0
    """When it was stored, or found, monotonic seconds."""
    failures: int = 0
    """How often the batch that is due has failed."""
    singles_until: int = 0
    """Below this offset records are handed on one by one: one of them makes batches fail."""
    due: float = 0.0
    """When to hand it on, monotonic seconds."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one partition, in order, and what is known of them."""

    topic: str
    group: str
    partition: int
    first_offset: int
    last_offset: int
    next_offset: int
    """What is committed when it is done with."""
    attempt: int
    """From 1."""
    lines: Sequence[bytes]
    """Each record as a JSON object."""
    is_wanted: Callable[[], bool]
    """Whether the partition is still held; asked while the batch is handed on."""


Hand = Callable[[Batch], str | None]
"""Hands a batch on; returns None once it is done with, or why it failed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker is to do."""

    topic: str
    group: str
    worker: str
    ttl_ms: int = 30_000
    parallel: int = 1
    batch_records: int = 100
    attempts: int | None = None
    """How often a batch is tried; None: until it succeeds."""
    filter: str | None = None
    """Which records are handed on, in the service's grammar; the others are passed over."""
    dead_letter_topic: str | None = None
    """Where records go that have failed so often; without it the worker ends."""
    is_once: bool = False
    """Whether to end when everything that is there has been handed on."""


@dataclass(slots=True)
class Report:
    """What a worker has done."""

    batches: int = 0
    records: int = 0
    dead_letters: int = 0


class _Entry(msgspec.Struct):
    """One partition of a fetch."""

    partition: int
    outcome: str
    records: list[msgspec.Raw] = []
    next_offset: int = 0
    problem: dict[str, Any] = {}


class _Fetched(msgspec.Struct):
    partitions: list[_Entry]


class _Offset(msgspec.Struct):
    offset: int


_fetched = msgspec.json.Decoder(_Fetched)
_offset = msgspec.json.Decoder(_Offset)


class Worker:
    """Works until `stop`, or, with `is_once`, until nothing is left."""

    def __init__(
        self, connection: Connection, plan: Plan, hand: Hand, *, say: Callable[[str], None]
    ) -> None:
        """`hand` is called by several threads; `say` gets sentences for people."""
        self.report = Report()
        self._connection = connection
        self._plan = plan
        self._hand = hand
        self._say = say
        self._changed = threading.Condition()
        self._shares: dict[int, Share] = {}
        self._ready: list[Share] = []
        """Those in the phase READY, in the order in which they are handed on."""
        self._is_stopping = False
        self._is_waiting = True
        """Whether others are about to release partitions."""
        self._failure: BaseException | None = None
        self._shown: tuple[int, ...] | None = None
        self._renew_at = 0.0
        """When to renew the lease, monotonic seconds."""

    # -- the thread that called --------------------------------------------------------------

    def run(self) -> Report:
        """Work; return once the last batch is committed and the lease is released.

        Raises Failure if the service refuses, or a batch has failed `attempts` times.
        """
        threads = [threading.Thread(target=self._guarded(self._poll), daemon=True)]
        threads += [
            threading.Thread(target=self._guarded(self._work), daemon=True)
            for _ in range(self._plan.parallel)
        ]
        # A wrong topic or key ends it before anything is started.
        if self._plan.dead_letter_topic is not None:
            self._connection.json(Request("GET", topic_path(self._plan.dead_letter_topic)))
        self._renew()
        for thread in threads:
            thread.start()
        try:
            self._keep()
        finally:
            self.stop()
            for thread in threads[1:]:
                thread.join()
            self._leave()
        if self._failure is not None:
            raise self._failure
        return self.report

    def stop(self) -> None:
        """Hand on nothing more; what runs is finished and committed. For any thread or handler."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Stop, and give up what runs."""
        with self._changed:
            for share in self._shares.values():
                share.is_lost = True
        self.stop()

    def _keep(self) -> None:
        """Renew the lease until there is nothing to do any more."""
        while True:
            with self._changed:
                due = self._renew_at
                while not self._is_over and time.monotonic() < due and not self._releasable:
                    self._changed.wait(due - time.monotonic())
                if self._is_over:
                    return
            self._renew()

    @property
    def _is_over(self) -> bool:
        is_running = any(one.phase is Phase.RUNNING for one in self._shares.values())
        return self._failure is not None or (self._is_stopping and not is_running)

    @property
    def _releasable(self) -> list[Share]:
        """Partitions that are to move, and of which no batch runs."""
        return [
            one
            for one in self._shares.values()
            if one.is_revoking and one.phase is not Phase.RUNNING
        ]

    def _renew(self) -> None:
        plan = self._plan
        with self._changed:
            released = self._releasable
            for share in released:
                self._drop(share)
        body = {
            "worker": plan.worker,
            "topics": [plan.topic],
            "ttl_ms": plan.ttl_ms,
            "release": [{"topic": plan.topic, "partition": share.partition} for share in released],
        }
        asked_at = time.monotonic()
        lease = self._connection.json(json_request("POST", group_path(plan.group, "leases"), body))
        with self._changed:
            self._renew_at = asked_at + lease["renew_in_ms"] / 1000
            self._is_waiting = lease["waiting"] > 0
            self._take(lease["partitions"], lease["revoking"])
            self._changed.notify_all()
            held = tuple(sorted(self._shares))
        if held != self._shown:
            self._shown = held
            self._say(f"{plan.worker} holds {len(held)} partitions of {plan.topic}{_listed(held)}")

    def _take(self, held: Sequence[dict[str, Any]], revoking: Sequence[dict[str, Any]]) -> None:
        fences = {one["partition"]: one["fence"] for one in [*held, *revoking]}
        for number, share in tuple(self._shares.items()):
            if fences.get(number) != share.fence:
                self._drop(share)
        now = time.monotonic()
        for one in held:
            share = Share(
                one["partition"],
                one["fence"],
                one["offset"],
                committed=one["offset"],
                committed_at=now,
            )
            self._shares.setdefault(share.partition, share).is_revoking = False
        for one in revoking:
            # One that is not known is what a process of this name had before.
            share = Share(one["partition"], one["fence"], one["offset"])
            self._shares.setdefault(share.partition, share).is_revoking = True

    def _drop(self, share: Share) -> None:
        share.is_lost = True
        self._shares.pop(share.partition, None)
        if share.phase is Phase.READY:
            self._ready.remove(share)

    def _leave(self) -> None:
        """Release the lease; if that fails, it ends by itself."""
        path = group_path(self._plan.group, "leases", self._plan.worker)
        self._connection.stop_waiting()  # once is enough
        try:
            for share in tuple(self._shares.values()):
                if share.phase in {Phase.IDLE, Phase.DRAINED} and self._has_passed(share):
                    self._commit(share, share.offset)
            self._connection.send(Request("DELETE", path))
        except Failure as failure:
            self._say(f"the lease ends by itself: it could not be released: {failure}")

    # -- the other threads -------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return the work of a thread: its failure ends the worker."""

        def run() -> None:
            try:
                work()
            except BaseException as failure:  # noqa: BLE001  # `run` raises it
                with self._changed:
                    self._failure = self._failure or failure
                    self._is_stopping = True
                    self._changed.notify_all()

        return run

    def _poll(self) -> None:
        """Wait for records of the partitions that are idle."""
        turn = 0
        while True:
            with self._changed:
                while not self._is_stopping and not self._may_poll:
                    if self._is_done:
                        self._is_stopping = True
                        self._changed.notify_all()
                    else:
                        self._changed.wait()
                if self._is_stopping:
                    return
                idle = self._idle
                is_all = len(idle) == len(self._shares) <= _MOST_POLLED
                first = turn % len(idle)
                idle = (idle[first:] + idle[:first])[:_MOST_POLLED]
                turn += len(idle)
            if self._plan.is_once:
                self._fetch(idle, 0)
            else:
                self._fetch(idle, _POLL_MS if is_all else _SHORT_POLL_MS)

    @property
    def _idle(self) -> list[Share]:
        shares = self._shares.values()
        return [one for one in shares if one.phase is Phase.IDLE and not one.is_revoking]

    @property
    def _may_poll(self) -> bool:
        """Whether records are wanted: a partition has none here, and too few others have."""
        return len(self._ready) < self._plan.parallel and bool(self._idle)

    @property
    def _is_done(self) -> bool:
        """Whether everything that was there is done, and no partition is about to come."""
        return (
            self._plan.is_once
            and not self._is_waiting
            and all(one.phase is Phase.DRAINED for one in self._shares.values())
        )

    def _fetch(self, shares: Sequence[Share], wait_ms: int) -> None:
        """Bring the next records of some partitions, if they are still idle by then."""
        offsets = [share.offset for share in shares]
        body = {
            "partitions": [
                {
                    "topic": self._plan.topic,
                    "partition": share.partition,
                    "offset": offset,
                    "isolation": "read_committed",
                }
                for share, offset in zip(shares, offsets, strict=True)
            ],
            "max_bytes": _PAGE_BYTES,
            "max_wait_ms": wait_ms,
            "filter": self._plan.filter,
        }
        request = json_request("POST", "/v1/fetch", body, wait_ms=wait_ms)
        response = self._connection.send(request)
        try:
            entries = _fetched.decode(response.content).partitions
        except msgspec.MsgspecError as error:
            raise Unreachable(self._connection.url, f"the response is no page: {error}") from error
        with self._changed:
            for share, offset, entry in zip(shares, offsets, entries, strict=True):
                if share.phase is Phase.IDLE and share.offset == offset and not share.is_lost:
                    self._bring(share, entry)
            passed = [one for one in shares if self._is_due_for_commit(one)]
            for share in passed:
                share.phase = Phase.RUNNING  # so that no other thread reads on meanwhile
            self._changed.notify_all()
        for share in passed:
            self._commit(share, share.offset)
            with self._changed:
                share.phase = Phase.IDLE
                self._changed.notify_all()

    def _has_passed(self, share: Share) -> bool:
        return self._plan.filter is not None and share.offset > share.committed

    def _is_due_for_commit(self, share: Share) -> bool:
        """Whether a filter has passed over records for so long that this is to be committed."""
        return (
            share.phase is Phase.IDLE
            and not share.is_lost
            and self._has_passed(share)
            and time.monotonic() - share.committed_at >= _PASSED_OVER_S
        )

    def _bring(self, share: Share, entry: _Entry) -> None:
        if entry.outcome == "failed":
            failure = Refused(int(entry.problem.get("status", 0)), entry.problem)
            if failure.code != "offset_below_log_start":
                raise failure
            start = int(entry.problem["log_start_offset"])
            self._say(
                f"{self._place(share)}: the offsets {share.offset} to {start - 1} were deleted "
                "before they were read"
            )
            share.offset = start
        elif entry.records:
            lines = [bytes(record) for record in entry.records]
            share.lines = [(_offset.decode(line).offset, line) for line in lines]
            share.read_end = entry.next_offset
            self._make_ready(share)
        elif entry.next_offset > share.offset:
            share.offset = entry.next_offset  # what lies there is not for readers
        elif self._plan.is_once:
            share.phase = Phase.DRAINED

    def _make_ready(self, share: Share, due: float = 0.0) -> None:
        share.phase, share.due = Phase.READY, due
        self._ready.append(share)

    def _work(self) -> None:
        """Hand batches on, one after the other."""
        while True:
            with self._changed:
                taken = self._take_due()
                if taken is None:
                    return
            share, batch = taken
            reason = self._hand(batch)
            self._settle(share, batch, reason)

    def _take_due(self) -> tuple[Share, Batch] | None:
        """Wait for a partition whose turn has come; None once the worker stops."""
        while not self._is_stopping:
            now = time.monotonic()
            for share in self._ready:
                if share.due <= now and not share.is_revoking:
                    self._ready.remove(share)
                    share.phase = Phase.RUNNING
                    return share, self._batch(share)
            dues = [one.due for one in self._ready if not one.is_revoking]
            self._changed.wait(min(dues) - now if dues else None)
        return None

    def _batch(self, share: Share) -> Batch:
        plan = self._plan
        count = 1 if share.lines[0][0] < share.singles_until else plan.batch_records
        taken = share.lines[:count]
        is_all = len(taken) == len(share.lines)
        return Batch(
            plan.topic,
            plan.group,
            share.partition,
            first_offset=taken[0][0],
            last_offset=taken[-1][0],
            next_offset=share.read_end if is_all else taken[-1][0] + 1,
            attempt=share.failures + 1,
            lines=[line for _, line in taken],
            is_wanted=lambda: not share.is_lost,
        )

    def _settle(self, share: Share, batch: Batch, reason: str | None) -> None:
        """Commit a batch that is done with, or put it off."""
        is_done = reason is None
        if reason is not None and not share.is_lost:
            is_done = self._has_failed(share, batch, reason)
        is_done = is_done and not share.is_lost and self._commit(share, batch.next_offset)
        with self._changed:
            if is_done:
                self.report.batches += 1
                self.report.records += len(batch.lines)
                share.failures = 0
                share.offset = batch.next_offset
                del share.lines[: len(batch.lines)]
            if share.is_lost or self._is_stopping or not share.lines:
                share.phase = Phase.IDLE
            else:
                self._make_ready(share, share.due)
            wants_more = share.phase is Phase.IDLE and not self._is_stopping and not share.is_lost
            self._changed.notify_all()
        if wants_more and not share.is_revoking:
            self._fetch([share], 0)  # a partition that has much is not kept waiting by the others

    def _has_failed(self, share: Share, batch: Batch, reason: str) -> bool:
        """Decide what becomes of a batch that failed; return whether it is done with.

        Raises Failure if it has failed too often, and there is no other place for it.
        """
        place = f"{self._place(share)}, {_offsets(batch)}"
        attempts = self._plan.attempts
        with self._changed:
            share.failures += 1
            share.due = 0.0
            if attempts is None or share.failures < attempts:
                pause_s = min(_FIRST_PAUSE_S * 2 ** (share.failures - 1), _LONGEST_PAUSE_S)
                pause_s *= random.uniform(0.5, 1.0)  # noqa: S311  # nothing secret depends on it
                share.due = time.monotonic() + pause_s
                of = "" if attempts is None else f" of {attempts}"
                self._say(
                    f"{place}: {reason}; attempt {share.failures}{of}, again in {pause_s:.1f} s"
                )
                return False
            if len(batch.lines) > 1:
                share.failures = 0
                share.singles_until = batch.last_offset + 1
                self._say(f"{place}: {reason}, {attempts} times; now its records one by one")
                return False
        if self._plan.dead_letter_topic is None:
            raise Failure(f"{place}: {reason}, {attempts} times; it is not committed")
        self._bury(share, batch, reason)
        self._say(f"{place}: {reason}, {attempts} times; now in {self._plan.dead_letter_topic}")
        return True

    def _commit(self, share: Share, offset: int) -> bool:
        """Store the group's offset; return False if another worker has the partition."""
        plan = self._plan
        path = group_path(plan.group, "offsets", plan.topic, share.partition)
        body = {"offset": offset}
        try:
            self._connection.send(
                json_request("PUT", path, body, {"Lease-Fence": str(share.fence)})
            )
        except Refused as refused:
            if refused.code != "lease_lost":
                raise
            self._say(
                f"{self._place(share)}: another worker has it, and repeats the offsets "
                f"{share.committed} to {offset - 1}"
            )
            with self._changed:
                self._drop(share)
            return False
        share.committed, share.committed_at = offset, time.monotonic()
        return True

    def _bury(self, share: Share, batch: Batch, reason: str) -> None:
        """Append a batch to the dead-letter topic, byte for byte and once."""
        plan = self._plan
        params: dict[str, str | int] = {
            "offset": batch.first_offset,
            "end_offset": batch.last_offset + 1,
            "isolation": "read_committed",
            "encoding": "base64",
        }
        if plan.filter is not None:
            params["filter"] = plan.filter
        read = Request("GET", topic_path(plan.topic, share.partition, "records"), params)
        records = self._connection.json(read)["records"]
        reasons = {
            "topic": plan.topic,
            "partition": str(share.partition),
            "group": plan.group,
            "attempts": str(plan.attempts),
            "reason": reason,
        }
        body = {
            "records": [
                {
                    "key": record["key"],
                    "key_encoding": record["key_encoding"],
                    "value": record["value"],
                    "value_encoding": record["value_encoding"],
                    "headers": [
                        *record["headers"],
                        {"key": "dead-letter-offset", "value": str(record["offset"])},
                        *({"key": f"dead-letter-{k}", "value": v} for k, v in reasons.items()),
                    ],
                }
                for record in records
            ]
        }
        once = f"{plan.group}/{plan.topic}/{share.partition}/{batch.first_offset}"
        assert plan.dead_letter_topic is not None, "asked before"
        path = topic_path(plan.dead_letter_topic, operation="records")
        self._connection.send(json_request("POST", path, body, {"Idempotency-Key": once}))
        with self._changed:
            self.report.dead_letters += len(records)

    def _place(self, share: Share) -> str:
        return f"{self._plan.topic}-{share.partition}"


def _offsets(batch: Batch) -> str:
    if batch.first_offset == batch.last_offset:
        return f"offset {batch.first_offset}"
    return f"offsets {batch.first_offset} to {batch.last_offset}"


def _listed(numbers: Sequence[int]) -> str:
    """Return the first of some partitions, for people."""
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return f": {shown}{', …' if len(numbers) > _SHOWN else ''}" if numbers else ""
