"""Ingest: what any HTTP client sends becomes records of a topic, on disk before the answer.

The records of a request usually have one partition: they are part of one batch, so all of them are
written or none. Records with keys of their own may have several. Then each partition's are written
or not, and the answer is an error unless all are: a sender takes any success for the whole body.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Self

from app.client.partitioner import partition_of
from app.codecs.calls import AppendCall, IngestCall, ensure_unconditional
from app.codecs.receipts import to_json
from app.errors import AppendBrokeOff, CommitTimedOut
from app.http.answers import Answer, Body, json_answer
from app.operations.append.append import (
    APPEND_ERRORS,
    AppendOptions,
    Receipt,
    RecordsAppend,
    Way,
    answer_of,
    build,
    complete,
    run_append,
)
from app.operations.deliveries.claim import Delivery, delivery_of, fingerprint_of
from app.operations.deliveries.idempotency_key import (
    INLINE_BYTES,
    REPLAYED,
    key_of,
    keyed_delivery,
    run_to_end,
)
from app.operations.exchange import Exchange
from app.operations.ingest.bodies import (
    NewRecords,
    Plan,
    is_firehose,
    parts_of,
    plan_of,
    receipt,
    records_of,
)
from app.operations.ingest.delivery_ids import DeliveryIds, delivery_ids_of
from app.operations.ingest.handshakes import (
    Asked,
    answer_to_get,
    answer_to_post,
)
from app.operations.ingest.profiles import IngestProfile
from app.operations.service import Service
from app.security.principal import Principal
from app.store.port import Partition, Run
from engine.errors import EngineError, WouldBlock
from engine.log.results import Appended, LogTag
from engine.records.budget import DecodeBudget, always_wanted
from engine.records.builder import NewRecord
from engine.types import Buffer

_OPTIONS: Final = AppendOptions(AppendCall(), can_coalesce=True)

_HEAD: Final = b"content-type: application/json\r\ncache-control: no-store\r\n"
_HEAD_REPEATED: Final = _HEAD + b"%b: %b\r\n" % REPLAYED


async def ingest(exchange: Exchange, topic: str, call: IngestCall, query: bytes = b"") -> Answer:
    """Append what a request brings, whatever it is; `query` is that of its URL."""
    service = exchange.service
    append = IngestMaker(exchange.head, call)(service, service.any_partition(topic))
    append.caller = exchange.caller
    key = key_of(exchange.head)
    body = await verified_body(exchange)
    profile = service.profiles.of(topic)
    answer = answer_to_post(profile, Asked(exchange.head, query, body))
    if answer is not None:
        return answer
    if key is not None:
        await use_key(append, exchange, key, body, call.split)
    answer = await append_once(append, exchange, body)
    if is_firehose(profile):
        return receipt(exchange.head, service.clock.now_ms())
    return answer


def probe(exchange: Exchange, topic: str, query: bytes) -> Answer:
    """Answer the health check of a sender, or what it asks before it sends."""
    service = exchange.service
    name = service.topic(topic).name
    answer = answer_to_get(service.profiles.of(topic), Asked(exchange.head, query))
    return answer or json_answer(to_json({"topic": name}))


async def use_key(
    append: IngestAppend, exchange: Exchange, key: bytes, body: Body, question: object
) -> None:
    """Have the append known by its Idempotency-Key if the body turns out to have no id."""
    asked = (append.partition.topic, question, exchange.head.get(b"content-type"))
    append.keyed = await keyed_delivery(exchange, append.partition, key, body, asked)


async def append_body(
    exchange: Exchange, topic: str, shape: Callable[[Plan], Plan], question: object
) -> Answer:
    """Append a body in the form of one kind of sender, and return the receipt.

    `question` is what the URL asks, besides the topic. Raises as `ingest`.
    """
    service = exchange.service
    append = IngestMaker(exchange.head, IngestCall())(service, service.any_partition(topic))
    append.plan = shape(append.plan)
    append.caller = exchange.caller
    key = key_of(exchange.head)
    body = await verified_body(exchange)
    if key is not None:
        await use_key(append, exchange, key, body, question)
    return await append_once(append, exchange, body)


async def append_once(append: IngestAppend, exchange: Exchange, body: Body) -> Answer:
    """Append a body unless its delivery was appended before, and return the receipt."""
    if append.keyed is None and append.ids.is_none:
        return await complete(append, exchange, body)
    return await run_to_end(_deliver(append, exchange, body))


async def _deliver(append: IngestAppend, exchange: Exchange, body: Body) -> Answer:
    try:
        # A repetition may wait for this append, even if its client disconnects.
        await run_append(append, exchange, body, always_wanted)
    finally:
        append.release()
    return await answer_of(append)


async def verified_body(exchange: Exchange) -> Body:
    """Return the decoded body of a request whose sender is known; raises InvalidSignature."""
    body = await exchange.body_as_sent()
    await exchange.service.senders.verified(exchange.caller, exchange.head, body, exchange.write)
    return await exchange.unpacked(body)


class IngestMaker:
    """Makes the appends of requests with one head. Belongs to the event loop.

    What the head means is found once for each profile that the topic has.
    """

    __slots__ = ("_call", "_head", "_ids", "_plan", "_profile")

    def __init__(self, head: Mapping[bytes, bytes], call: IngestCall) -> None:
        self._head = head
        self._call = call
        self._profile: IngestProfile | None = None
        """The profile of the plan and the ids; None: there are none yet."""
        self._plan: Plan
        self._ids: DeliveryIds

    def __call__(self, service: Service, partition: Partition) -> IngestAppend:
        """Return an append to the topic of this partition, or of another one of it.

        Raises MalformedRequest for headers that make no sense.
        """
        profile = service.profiles.of(partition.topic)
        if profile is not self._profile:
            ensure_unconditional(self._head)
            self._plan = plan_of(self._head, self._call.split, profile)
            self._ids = delivery_ids_of(self._head, profile)
            self._profile = profile
        return IngestAppend(service, partition, self._plan, self._ids)

    def with_values(self, head: Mapping[bytes, bytes], changed: Collection[bytes]) -> IngestMaker:
        """Return the maker of a head that differs in the values of these headers only."""
        maker = IngestMaker(head, self._call)
        profile = self._profile
        if profile is not None and profile.ignored.issuperset(changed):
            maker._plan, maker._ids, maker._profile = self._plan, self._ids, profile
        return maker


class _Written(NamedTuple):
    """The records of a body in one partition."""

    partition: Partition
    appended: Appended

    def shown(self) -> dict[str, int]:
        """Return what the answer says of it."""
        appended = self.appended
        return {
            "partition": self.partition.number,
            "offset": appended.base_offset,
            "count": appended.records_count,
        }


class AlreadyAppended(Exception):
    """An earlier request had this delivery, or there is nothing to append: the result is known."""


def _nothing_appended(partition: Partition) -> Appended:
    """Return the result for a batch of events that is empty, which CloudEvents allows."""
    marks = partition.watermarks
    end = marks.high_watermark
    tag = LogTag(partition.leader_epoch, marks.log_end_offset, 0)
    return Appended(end, end - 1, 0, -1, False, marks, tag)


class IngestAppend(RecordsAppend):
    """The records of one body, for one partition or several."""

    __slots__ = (
        "_partitions",
        "_parts",
        "_sticky",
        "_written",
        "caller",
        "delivery",
        "ids",
        "keyed",
        "plan",
    )

    caller: Principal
    """The sender, whose ids are its own; a signature is verified before the body is looked at."""

    def __init__(
        self, service: Service, partition: Partition, plan: Plan, ids: DeliveryIds
    ) -> None:
        """`partition` is any one of the topic."""
        super().__init__(service, partition, _OPTIONS)
        self.plan = plan
        self.ids = ids
        self.delivery: Delivery | None = None
        """What the request is known by; None until the body is there, or without an id."""
        self.keyed: Delivery | None = None
        """The same by Idempotency-Key, for a body without an id of its own."""
        self.records = []
        self._parts: Mapping[int, NewRecords] = {}
        """The records by partition, once the body is decoded."""
        self._partitions = 0
        self._sticky = 0
        """The partition of records without a key."""
        self._written: Sequence[_Written] = ()
        """What several partitions have, once it is on disk."""

    def take(self, body: Body) -> None:
        """Decode the body for one partition, and claim its delivery.

        Raises AlreadyAppended; WouldBlock if that takes a wait, or the records have several
        partitions.
        """
        if len(body) > INLINE_BYTES and not self.ids.is_none:
            raise WouldBlock  # it is hashed
        self._identify(body)
        if self.delivery is not None and self.claim is None:
            self.claim = self._service.deliveries.claim(self.delivery)
        self._place()
        self._parts = self._decoded(body)
        self._choose()

    def run_now(self, body: Body) -> None:
        with suppress(AlreadyAppended):
            super().run_now(body)

    async def run(self, body: Body, run: Run, budget: DecodeBudget) -> None:
        if not self._parts:
            await run(partial(self._identify, body))
            if self.delivery is not None and self.claim is None:
                self.claim = await self._service.deliveries.claimed(self.delivery)
            self._place()
            self._parts = await run(partial(self._decoded, body))
        if len(self._parts) > 1:
            await self._append_parts(run)
            return
        with suppress(AlreadyAppended):
            if not self.records:
                self._choose()
            await super().run(body, run, budget)

    def release(self) -> None:
        """Release the claim: the records are in the log, or refused."""
        if self.claim is not None:
            self.claim.close()

    def _identify(self, body: Body) -> None:
        """Find the id of the delivery, unless it is known."""
        if self.delivery is not None:
            return
        named = self.ids.of(body)
        if named is None:
            self.delivery = self.keyed
            return
        scope, found = named
        scope = b"%b %b" % (self.caller.name.encode(), scope)
        self.delivery = delivery_of(self.partition, scope, found, fingerprint_of(b"", body))

    def _place(self) -> None:
        """Choose the partition of records without a key: the same for a repetition."""
        service, claim, topic = self._service, self.claim, self.partition.topic
        partitions = service.topic(topic).partitions
        if claim is not None:
            partitions = claim.choose_among(partitions)
        self._partitions = partitions
        if self.plan.key is not None:
            self._sticky = partition_of(self.plan.key, partitions)
        elif claim is not None:
            self._sticky = claim.sticky_partition
        else:
            self._sticky = service.sticky_partition(topic, partitions)

    def _choose(self) -> None:
        """Take the partition of all records; WouldBlock if they have several.

        Raises AlreadyAppended if there is nothing to append.
        """
        if len(self._parts) > 1:
            raise WouldBlock
        if not self._parts:
            self.appended = _nothing_appended(self.partition)
            raise AlreadyAppended
        ((number, records),) = self._parts.items()
        self.partition = self._service.partition(self.partition.topic, number)
        if self.claim is not None:
            repeated = self.claim.repeated(self.partition)
            if repeated is not None:
                self.appended = repeated
                raise AlreadyAppended
            self.claim.mark(records)
        self.records = records

    def way_of(self, body: Body) -> Way:
        way = super().way_of(body)
        # A record has at least a byte of the body: are they certain to be one batch?
        most_bytes = len(body) * self.plan.record_bytes
        if self.plan.is_whole or most_bytes <= self.partition.config.max_message_bytes:
            return way
        return Way.ALONE if way is Way.SHARED else way

    def batch(self, others: Sequence[Self] = ()) -> bytearray:
        if others or len(self.records) == 1:
            return super().batch(others)
        return self._batches(self.partition, self.records)

    def _batches(self, partition: Partition, records: NewRecords) -> bytearray:
        """Return as many batches as the topic's limit asks for."""
        parts = parts_of(records, partition.config.max_message_bytes)
        batches = [build(partition, self.call, part) for part in parts]
        return batches[0] if len(batches) == 1 else bytearray().join(batches)

    def _encoded(self, body: Body) -> Buffer:  # noqa: ARG002  # it is decoded
        batch = self.batch()
        self.records, self._parts = [], {}
        return batch

    def _decoded(self, body: Body) -> Mapping[int, NewRecords]:
        """Return the records by partition, in the order of the body; runs on any thread."""
        service, config = self._service, self.partition.config
        records = records_of(
            body,
            self.plan,
            now_ms=service.clock.now_ms(),
            max_records=service.settings.max_records_per_request,
            requires_keys=config.is_compacted,
        )
        if not records:
            return {}
        if not self.plan.has_own_keys or self._partitions == 1:
            return {self._sticky: records}
        parts: dict[int, list[NewRecord]] = defaultdict(list)
        for record in records:
            key = record[1]
            number = self._sticky if key is None else partition_of(bytes(key), self._partitions)
            parts[number].append(record)
        return parts

    async def _append_parts(self, run: Run) -> None:
        """Append one batch a partition and wait until all are on disk.

        Raises the first error; AppendBrokeOff with it if some are on disk. A sender that repeats
        such a request appends those again, unless the request has a delivery id.
        """
        written: list[_Written] = []
        failures: list[Exception] = []
        for number, records in self._parts.items():
            try:
                written.append(await self._append_part(number, records, run))
            except APPEND_ERRORS as error:
                failures.append(error)
        for part in [*written]:
            try:
                await part.partition.committed(part.appended.last_offset + 1)
            except (EngineError, CommitTimedOut) as error:
                failures.append(error)
                written.remove(part)
        if failures and written:
            shown = [part.shown() for part in written]
            raise AppendBrokeOff(failures[0], has_written=True, may_repeat=True, written=shown)
        if failures:
            raise failures[0]
        self._written = written
        self.partition, self.appended = written[0]

    async def _append_part(self, number: int, records: NewRecords, run: Run) -> _Written:
        partition, claim = self._service.partition(self.partition.topic, number), self.claim
        if claim is not None:
            repeated = claim.repeated(partition)
            if repeated is not None:
                return _Written(partition, repeated)
            claim.mark(records)
        make = partial(self._batches, partition, records)
        appended = await partition.append(make, acks="all", checked=True, run=run)
        if claim is not None:
            claim.written(partition, appended)
        return _Written(partition, appended)

    def receipt(self) -> Receipt:
        """Return where the records are; that of several partitions names the first in front."""
        first = _Written(self.partition, self.appended).shown()
        count = first["count"]
        more = b""
        if self._written:
            parts = [one.shown() for one in self._written]
            count = sum([part["count"] for part in parts])
            more = b',"partitions":%b' % to_json(parts)
        body = b'{"topic":"%b","partition":%d,"offset":%d,"count":%d%b}' % (
            self.partition.topic.encode(), first["partition"], first["offset"], count, more,
        )  # fmt: skip
        is_repeated = self.claim is not None and bool(self.claim.known)
        return Receipt(200, _HEAD_REPEATED if is_repeated else _HEAD, body)
