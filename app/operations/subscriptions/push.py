"""Pushes one partition: the next batch is sent when the one before is answered and committed.

So the order is kept, and a batch that was sent and not committed is sent again with the same id,
after a restart too. Nothing ends a push but its cancellation, or an answer that pauses or stops the
subscription: whatever else goes wrong is told in its state and tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from app.codecs.filter import filter_of
from app.codecs.records_out import render_records
from app.codecs.stored import StoredRecords, View
from app.errors import CursorNotFound, LeaseLost, ServiceError
from app.limits.executors import Workers
from app.operations.subscriptions.requests import Batch, batch_of, request_of
from app.store.port import Cursor, CursorKey, CursorValue, Partition
from engine.errors import EngineError, OffsetBelowLogStart
from engine.log.results import Fetched
from engine.records.budget import DecodeBudget
from engine.records.builder import NewRecord, build_batch
from engine.types import Buffer, FetchIsolation, TopicPartition
from schemas.subscriptions import PutSubscription

if TYPE_CHECKING:
    from app.operations.service import Service
    from app.operations.subscriptions.sender import Response, Sender

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

LONGEST_PAUSE_MS: Final = 3_600_000
"""Longest wait that a receiver can ask for with Retry-After."""

TROUBLE_PAUSE_S: Final = 5.0
"""Between attempts to read or commit what cannot be read or committed."""

LEAST_READ_BYTES: Final = 64 * 1024

NEXT_LOOK_S: Final = 0.01

HOLDER: Final = "subscriptions"

GONE: Final = 410
_ASKS_TO_WAIT: Final = frozenset({429, 503})


class Answer(NamedTuple):
    """What came of a request."""

    timestamp_ms: int
    duration_ms: int
    status: int | None
    problem: str | None
    retry_after_ms: int = 0


class Paused(Exception):
    """The receiver wants nothing more."""


class Stopped(Exception):
    """A request has failed too often, and its records have no other place."""


class Push:
    """One partition of a subscription. Belongs to the event loop."""

    def __init__(
        self,
        service: Service,
        sender: Sender,
        name: str,
        options: PutSubscription,
        place: TopicPartition,
        *,
        fence: int | None,
        count: Callable[[str], None],
    ) -> None:
        """`fence` is that of a lease, where replicas share the partitions.

        `count` gets the outcome of each request.
        """
        self.place = place
        self.fence = fence
        self.offset = 0
        """Where the next batch begins."""
        self.committed = 0
        """What the group has stored."""
        self.failures = 0
        self.next_attempt_ms: int | None = None
        self.last: Answer | None = None
        self._service = service
        self._sender = sender
        self._name = name
        self._options = options
        self._count = count
        self._key = CursorKey(options.group or "", *place)
        self._read_bytes = options.batch.max_bytes
        self._wanted = None if options.filter is None else filter_of(options.filter)
        self.task = asyncio.create_task(self._run())
        """Ends by its cancellation, with Paused, Stopped or LeaseLost, or by a fault of ours."""

    async def _run(self) -> None:
        self.offset = self.committed = await self._persist(self._begin)
        while True:
            batch = await self._persist(self._next)
            await self._deliver(batch)
            self.offset = batch.next_offset
            await self._persist(self._commit)

    async def _persist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what some work with the log returns, however often it fails before."""
        while True:
            try:
                return await work()
            except LeaseLost:
                raise
            except (EngineError, ServiceError) as error:
                now_ms = self._service.clock.now_ms()
                self.last = Answer(now_ms, 0, None, str(error))
                await asyncio.sleep(TROUBLE_PAUSE_S)

    # -- the log -----------------------------------------------------------------------------

    def _partition(self) -> Partition:
        return self._service.partition(*self.place)

    async def _begin(self) -> int:
        """Return where to begin: the group's offset, or the log start for a partition that is new.

        `putSubscription` stores an offset for the partitions that there are.
        """
        try:
            return (await self._service.groups.get(self._key)).value.offset
        except CursorNotFound:
            partition = self._partition()
            await partition.refresh()
            return partition.watermarks.log_start_offset

    async def _next(self) -> Batch:
        """Wait for the next records that are wanted."""
        options = self._options
        max_records = 1 if options.format == "body" else options.batch.max_records
        while True:
            partition = self._partition()
            with self._service.tail.watch((partition.identity,)) as watch:
                batch, is_at_end = await self._look(partition, max_records)
                if batch is None and not is_at_end:
                    continue
                if batch is None:
                    if self.offset != self.committed:
                        await self._commit()  # so that records that are not wanted are no lag
                    if partition.watermarks.last_stable_offset <= self.offset:
                        await watch.wait()
                    else:
                        await asyncio.sleep(NEXT_LOOK_S)  # a broker has it, and has not sent it
                    continue
                linger_ms = options.batch.max_wait_ms
                if not linger_ms or not is_at_end or len(batch.lines) >= max_records:
                    return batch
            await asyncio.sleep(linger_ms / 1000)
            batch, _ = await self._look(partition, max_records)
            assert batch is not None, "what was there is there"
            return batch

    async def _look(self, partition: Partition, max_records: int) -> tuple[Batch | None, bool]:
        """Return the next batch, if there is one, and whether the log's end was reached.

        Moves past records that are not wanted.
        """
        options = self._options
        read = {"max_bytes": self._read_bytes, "isolation": FetchIsolation.TXN_COMMITTED}
        try:
            fetched = partition.read_now(self.offset, **read, waits=True)  # type: ignore[arg-type]  # its own
            if fetched is None:
                fetched = await partition.read(self.offset, **read, holder=HOLDER)  # type: ignore[arg-type]  # as above
        except OffsetBelowLogStart:
            await partition.refresh()
            start = partition.watermarks.log_start_offset
            _LOG.warning(
                "%s: offsets %d to %d of %s were deleted before they were pushed",
                self._name,
                self.offset,
                start - 1,
                partition.topic_partition,
            )
            self.offset = start
            return None, False
        if not fetched.data:
            self.offset = max(self.offset, fetched.next_offset)
            return None, True
        text, next_offset = await self._rendered(fetched, max_records)
        if not text:
            self.offset = next_offset
            return None, False
        is_at_end = next_offset >= fetched.watermarks.last_stable_offset
        batch = batch_of(*self.place, text, next_offset)
        # A full batch needs about so much again; what is read beyond is read twice.
        is_full = len(batch.lines) >= max_records
        self._read_bytes = options.batch.max_bytes
        if is_full:
            self._read_bytes = min(max(2 * len(text), LEAST_READ_BYTES), self._read_bytes)
        return batch, is_at_end

    async def _rendered(self, fetched: Fetched, max_records: int) -> tuple[bytes, int]:
        settings = self._service.settings
        budget = DecodeBudget(settings.decode_limits())
        view = View(
            start=self.offset,
            max_records=max_records,
            max_answer_bytes=settings.max_answer_bytes,
            max_record_bytes=settings.max_answer_bytes,
            limit_bytes=settings.max_decompressed_batch_bytes,
            budget=budget,
            encoding="base64" if self._options.format == "body" else None,
            is_ndjson=True,
            is_verified=fetched.is_verified,
            wanted=self._wanted,
        )

        def render() -> tuple[bytes, int]:
            with self._service.render_memory.hold((fetched.data,)):
                rendered = render_records(fetched.data, view)
            next_offset = rendered.next_offset
            return bytes(rendered.text), fetched.next_offset if next_offset is None else next_offset

        return await self._service.workers.read(lambda: budget.run(render), HOLDER)

    async def _commit(self) -> None:
        """Store the group's offset; raises LeaseLost if another replica has the partition."""
        service, place = self._service, self.place
        if self.fence is not None:
            await service.leases.of_group(self._key.group)

        def decide(_: Cursor | None) -> CursorValue:
            if self.fence is not None:
                service.leases.ensure_held(self._key.group, place, self.fence)
            return CursorValue(self.offset, commit_timestamp=service.clock.now_ms())

        await service.groups.put(self._key, decide)
        self.committed = self.offset

    # -- the receiver ------------------------------------------------------------------------

    async def _deliver(self, batch: Batch) -> None:
        """Send a batch until it is answered with success, or given up."""
        retry = self._options.retry
        while True:
            answer = await self._send(batch)
            if answer.problem is None:
                self.failures, self.next_attempt_ms = 0, None
                return
            if answer.status == GONE:
                raise Paused(answer.problem)
            self.failures += 1
            if retry.attempts is not None and self.failures >= retry.attempts:
                await self._give_up(batch, answer.problem)
                self.failures, self.next_attempt_ms = 0, None
                return
            pause_ms = min(retry.initial_ms * 2 ** min(self.failures - 1, 30), retry.max_ms)
            pause_ms = int(pause_ms * random.uniform(0.5, 1.0))  # noqa: S311  # nothing secret
            pause_ms = max(pause_ms, answer.retry_after_ms)
            self.next_attempt_ms = self._service.clock.now_ms() + pause_ms
            await asyncio.sleep(pause_ms / 1000)

    async def _send(self, batch: Batch) -> Answer:
        clock = self._service.clock
        now_ms, began_ms = clock.now_ms(), clock.monotonic_ms()
        request = request_of(
            self._name, self._options, batch, now_ms=now_ms, attempt=self.failures + 1
        )
        answer, _ = await answered(
            self._sender, self._options, request.headers, request.body, now_ms=now_ms
        )
        self.last = answer._replace(duration_ms=int(clock.monotonic_ms() - began_ms))
        self._count("failed" if self.last.problem else "done")
        return self.last

    async def _give_up(self, batch: Batch, problem: str) -> None:
        """Put a batch into the dead-letter topic, byte for byte; raises Stopped without one."""
        topic = self._options.dead_letter_topic
        if topic is None:
            where = f"{batch.topic}-{batch.partition}, offset {batch.first_offset}"
            raise Stopped(f"{where}: {problem}, {self.failures} times")
        await self._persist(lambda: self._bury(batch, topic, problem))
        self._count("dead_letter")

    async def _bury(self, batch: Batch, topic: str, problem: str) -> None:
        partition = self._partition()
        fetched = await partition.read(
            batch.first_offset,
            max_bytes=self._options.batch.max_bytes,
            isolation=FetchIsolation.TXN_COMMITTED,
            holder=HOLDER,
        )
        reasons = {
            "dead-letter-topic": batch.topic,
            "dead-letter-partition": str(batch.partition),
            "dead-letter-subscription": self._name,
            "dead-letter-reason": problem[:1_000],
        }
        view = View(
            start=batch.first_offset,
            end=batch.last_offset + 1,
            limit_bytes=self._service.settings.max_decompressed_batch_bytes,
            wanted=self._wanted,
        )
        partitions = self._service.partitions(topic)
        target = partitions[batch.partition % len(partitions)]
        await bury(self._service.workers, target, fetched.data, view, reasons)


async def answered(
    sender: Sender,
    options: PutSubscription,
    headers: Mapping[str, str],
    body: Buffer,
    *,
    now_ms: int,
) -> tuple[Answer, Response | None]:
    """Send a request and judge what came of it; the duration is the caller's to measure."""
    try:
        response = await sender.post(options.url, headers, body, options.timeout_ms)
    except TimeoutError:
        return Answer(now_ms, 0, None, f"no response within {options.timeout_ms} ms"), None
    except Exception as error:  # noqa: BLE001  # whatever a receiver does is no fault of ours
        said = str(error) or type(error).__name__
        return Answer(now_ms, 0, None, f"no response: {said}"), None
    status = response.status
    problem = None if 200 <= status < 300 else f"status {status}"
    if 300 <= status < 400:
        problem = f"status {status}: redirects are not followed"
    retry_after_ms = 0
    if status in _ASKS_TO_WAIT and response.retry_after is not None:
        retry_after_ms = _milliseconds(response.retry_after, now_ms)
    return Answer(now_ms, 0, status, problem, retry_after_ms), response


def _milliseconds(retry_after: str, now_ms: int) -> int:
    """Return how long Retry-After asks to wait (RFC 9110, 10.2.3), within an hour."""
    asked_ms = 0
    if retry_after.isascii() and retry_after.isdigit():
        asked_ms = int(retry_after[:10]) * 1000
    else:
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            asked_ms = int(parsedate_to_datetime(retry_after).timestamp() * 1000) - now_ms
    return min(max(asked_ms, 0), LONGEST_PAUSE_MS)


async def bury(
    workers: Workers, partition: Partition, data: Buffer, view: View, reasons: Mapping[str, str]
) -> None:
    """Append the records of a view to another topic, byte for byte, and wait for the disk.

    A crash right behind it repeats that: `dead-letter-offset` tells repetitions apart.
    """
    more = [(name, value.encode()) for name, value in reasons.items()]

    def made() -> Buffer:
        records: list[NewRecord] = [
            (
                record.timestamp,
                record.key,
                record.value,
                (*record.headers, ("dead-letter-offset", b"%d" % record.offset), *more),
            )
            for _, some in StoredRecords(data, view)
            for record in some
        ]
        return build_batch(records)

    appended = await partition.append(
        made, acks="all", checked=True, run=partial(workers.write, holder=HOLDER)
    )
    await partition.committed(appended.last_offset + 1)
