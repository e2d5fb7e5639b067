"""Fetch of several partitions: one wait and one budget of bytes, as in Kafka's Fetch request.

Each fetch starts its budget at a random partition: if it were always the first, a busy partition
would starve the later ones. The answer has the order of the request.

All partitions of a topic are read a page at a time; a token holds the offset of every partition.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import msgspec

from app.codecs.calls import ReadCall, fetch_call
from app.codecs.filter import filter_of
from app.codecs.paging import (
    Position,
    Positions,
    decode_token,
    encode_positions,
    encode_token,
    malformed_token,
    parse_positions,
)
from app.codecs.parts import (
    MULTIPART,
    MixedParts,
    entries_body,
    entry_frame_bytes,
    failed_entry,
    read_entry,
)
from app.codecs.receipts import page_body, to_json
from app.codecs.records_out import render_records
from app.codecs.stored import View
from app.errors import MalformedRequest, RecordTooLarge, ServiceError
from app.http.answers import JSON, JSON_WITH_TEXT_OFFSETS, NO_STORE, Answer
from app.http.problems import problem_answer
from app.http.request_checks import trace_of
from app.operations.exchange import Exchange
from app.operations.read.fetch import (
    ensure_current,
    ensure_log_id,
    fetch,
    fetch_now,
    may_grow,
    moved_since,
    start_offset,
    with_end,
)
from app.operations.request_content import negotiate
from app.operations.service import Service
from app.operations.wait import long_poll
from app.security.rules import Action
from app.store.port import Partition
from engine.errors import EngineError, LogReplaced, StoredDataCorrupt, TooLarge, WouldBlock
from engine.log.results import Fetched, ReadEnd
from engine.records.budget import DecodeBudget
from engine.types import INT64_MAX, Buffer
from schemas.fetch_many import FetchRequest, PartitionFetch, TopicReadParameters

INLINE_PARTITIONS: Final = 16
"""More partitions than this are read on a worker: each takes some 20 µs of the event loop."""

JSON_COPIES: Final = 3
"""Copies of the records in memory while a JSON answer is rendered: pages, entries, body."""

VARY: Final = (b"vary", b"accept, accept-encoding")


@dataclass(slots=True)
class Part:
    """One partition of the request, and its result."""

    wanted: PartitionFetch
    call: ReadCall
    partition: Partition | None = None
    start: int = 0
    fetched: Fetched | None = None
    error: Exception | None = None
    records_count: int = 0
    """Records that were shown as JSON."""
    next_offset: int = 0
    """Offset after what was shown as JSON."""

    @property
    def size_bytes(self) -> int:
        return 0 if self.fetched is None else len(self.fetched.data)

    @property
    def path(self) -> str:
        return f"/v1/topics/{quote(self.wanted.topic)}/partitions/{self.wanted.partition}"

    @property
    def may_grow(self) -> bool:
        """Whether a commit can extend the result."""
        return self.fetched is not None and may_grow(self.fetched)

    @property
    def is_at_end(self) -> bool:
        """Whether all that could be read was shown as JSON."""
        assert self.fetched is not None, "only a partition that was read is shown"
        return self.next_offset >= self.fetched.watermarks.bound(self.call.isolation).offset

    @property
    def has_moved(self) -> bool:
        """Whether a new read would find something else than the last one."""
        if self.fetched is None or self.partition is None:
            return True
        return moved_since(self.partition, self.call, self.fetched)

    def fail(self, error: Exception) -> None:
        self.error, self.fetched = error, None


async def fetch_many(exchange: Exchange, wanted: FetchRequest) -> Answer:
    """Read from several partitions; wait for more if the request says so."""
    media_type = negotiate(exchange.head.get(b"accept"), (JSON, MULTIPART))
    if wanted.filter is not None:
        if media_type != JSON:
            raise MalformedRequest(
                "batches are sent whole: a filter needs Accept: application/json"
            )
        filter_of(wanted.filter)  # before anything is read
    fetch = Fetch(exchange, wanted)
    await fetch.begin()
    await long_poll(exchange, fetch, wanted.max_wait_ms)
    if media_type == JSON:
        body = await fetch.as_json()
        content_type = JSON_WITH_TEXT_OFFSETS if wanted.offsets == "string" else JSON
    else:
        mixed = fetch.as_batches()
        body, content_type = mixed.body(), mixed.content_type
    exchange.ticket.exchange_answer(len(body))
    return Answer(200, [(b"content-type", content_type), NO_STORE, VARY], body)


class Fetch:
    """One request and its state."""

    def __init__(self, exchange: Exchange, wanted: FetchRequest) -> None:
        """Raise TooLarge for too many partitions."""
        settings = exchange.service.settings
        count = len(wanted.partitions)
        if count > settings.max_fetch_partitions:
            raise TooLarge(
                f"{count} partitions exceed max_fetch_partitions",
                limit="max_fetch_partitions",
                limit_bytes=settings.max_fetch_partitions,
                actual_bytes=count,
            )
        self._exchange = exchange
        self._service = exchange.service
        self._wanted = wanted
        max_bytes = settings.default_fetch_bytes if wanted.max_bytes is None else wanted.max_bytes
        self._max_bytes = min(max_bytes, settings.max_fetch_bytes)
        self.parts = [Part(one, fetch_call(one)) for one in wanted.partitions]
        first = secrets.randbelow(count)
        self._drawn = self.parts[first:] + self.parts[:first]

    @property
    def _size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    async def begin(self) -> None:
        """Find every partition and its start, then read all of them."""
        for part in self.parts:
            try:
                self._exchange.caller.ensure(Action.READ, part.wanted.topic)
                part.partition = self._service.partition(part.wanted.topic, part.wanted.partition)
                part.call = await with_end(part.partition, part.call)
                part.start = await start_offset(self._exchange, part.partition, part.call)
            except (EngineError, ServiceError) as error:
                part.fail(error)
        await self._look(self._drawn)

    @property
    def logs(self) -> Sequence[Hashable]:
        """The logs whose commits can extend the result."""
        return [
            part.partition.identity
            for part in self.parts
            if part.may_grow and part.partition is not None
        ]

    def may_wait(self) -> bool:
        """Whether every partition that can grow is still there."""
        return all(self._is_there(part) for part in self._growing())

    def has_moved(self) -> bool:
        """Whether a partition can be read on."""
        return any(part.has_moved for part in self._growing())

    async def look(self) -> None:
        """Read the partitions that have moved."""
        await self._look(self._growing())

    def _growing(self) -> Sequence[Part]:
        return [part for part in self._drawn if part.may_grow]

    def is_answered(self) -> bool:
        """Whether to answer: enough bytes, an error, a full budget, or nothing can be added."""
        if self._size_bytes >= min(self._wanted.min_bytes, self._max_bytes):
            return True
        ends = {None if part.fetched is None else part.fetched.ended_by for part in self.parts}
        return bool(ends - {ReadEnd.LOG_BOUND, ReadEnd.END_OFFSET}) or ReadEnd.LOG_BOUND not in ends

    async def _look(self, parts: Sequence[Part]) -> None:
        """Read those that have moved, within the remaining budget."""
        moved = [part for part in parts if self._is_there(part) and part.has_moved]
        self._exchange.ticket.hold_answer(self._max_bytes)
        for part in moved:
            part.fetched = None
        held = self._size_bytes
        for count, part in enumerate(moved, start=1):
            left = max(0, self._max_bytes - held)
            max_bytes = left if part.call.max_bytes is None else min(left, part.call.max_bytes)
            try:
                # The first batch is read whatever its size, so that every reader advances.
                await self._read(part, max_bytes, minimum_one_batch=held == 0)
            except EngineError as error:
                part.fail(error)
            held += part.size_bytes
            if count % INLINE_PARTITIONS == 0:
                await asyncio.sleep(0)
        self._exchange.ticket.settle_answer(self._size_bytes)

    def _is_there(self, part: Part) -> bool:
        try:
            if part.partition is not None:
                ensure_current(self._service, part.partition)
        except EngineError as error:
            part.fail(error)
        return part.error is None

    async def _read(self, part: Part, max_bytes: int, *, minimum_one_batch: bool) -> None:
        assert part.partition is not None, "a part without a partition has failed"
        partition, call, start = part.partition, part.call, part.start
        part.start, part.fetched = fetch_now(
            partition,
            call,
            start,
            max_bytes=max_bytes,
            minimum_one_batch=minimum_one_batch,
            waits=self._wanted.max_wait_ms > 0,
        ) or await fetch(
            partition,
            call,
            start,
            max_bytes=max_bytes,
            minimum_one_batch=minimum_one_batch,
            holder=self._exchange.ticket.holder,
        )

    async def as_json(self) -> bytes:
        """Return the records of all partitions."""
        entries = await self.entries()
        return entries_body(entries[id(part)] for part in self.parts)

    async def entries(self) -> Mapping[int, bytes]:
        """Return an entry for each part, by its identity, and note in the part where it ends."""
        is_small = self._size_bytes <= self._service.settings.inline_read_bytes
        if is_small and len(self.parts) <= INLINE_PARTITIONS:
            with suppress(WouldBlock):
                return self._entries_now(None)
        exchange = self._exchange
        reads = [part.fetched.data for part in self.parts if part.fetched is not None]

        def work() -> Mapping[int, bytes]:
            with self._service.render_memory.hold(reads, copies=JSON_COPIES):
                return self._entries_now(exchange.budget)

        return await exchange.decode(exchange.read, work)

    def _entries_now(self, budget: DecodeBudget | None) -> Mapping[int, bytes]:
        """Return all entries; without a budget WouldBlock may be raised."""
        settings = self._service.settings
        wanted_records = None if self._wanted.filter is None else filter_of(self._wanted.filter)
        left_records = settings.default_fetch_records
        if self._wanted.max_records is not None:
            left_records = min(left_records, self._wanted.max_records)
        frames = [
            entry_frame_bytes(part.partition) for part in self.parts if part.partition is not None
        ]
        frame_bytes = len(entries_body(())) + sum(frames)
        left_bytes = settings.max_answer_bytes
        is_first = True
        entries: dict[int, bytes] = {}
        for part in self._drawn:
            if part.fetched is not None and part.partition is not None:
                view = View(
                    start=part.start,
                    end=INT64_MAX if part.call.end_offset is None else part.call.end_offset,
                    max_records=left_records,
                    max_answer_bytes=left_bytes,
                    max_record_bytes=settings.max_answer_bytes,
                    frame_bytes=frame_bytes,
                    minimum_one=is_first,
                    limit_bytes=settings.max_decompressed_batch_bytes,
                    budget=budget,
                    nonblocking=budget is None,
                    encoding=self._wanted.encoding,
                    offsets_as_text=self._wanted.offsets == "string",
                    is_verified=part.fetched.is_verified,
                    texts=None
                    if wanted_records
                    else self._service.texts_of(part.partition, part.fetched),
                    wanted=wanted_records,
                )
                try:
                    entry, records_bytes = _read_entry(part, view)
                except (StoredDataCorrupt, RecordTooLarge) as error:
                    part.fail(error)
                else:
                    left_records -= part.records_count
                    left_bytes -= records_bytes
                    is_first = is_first and not part.records_count
                    entries[id(part)] = entry
            if part.fetched is None:
                wanted = part.wanted
                entry = failed_entry(wanted.topic, wanted.partition, self._problem_of(part))
                left_bytes -= len(entry)
                entries[id(part)] = entry
        return entries

    def as_batches(self) -> MixedParts:
        """Return the batches of all partitions, as they are stored."""
        mixed = MixedParts()
        for part in self.parts:
            if part.fetched is None:
                mixed.add_problem(part.path, self._problem_of(part))
            else:
                assert part.partition is not None, "a part without a partition has failed"
                mixed.add_batches(part.partition, part.call, part.start, part.fetched)
        return mixed

    def _problem_of(self, part: Part) -> Buffer:
        assert part.error is not None, "a partition was read, or has failed"
        trace = trace_of(self._exchange.head)
        return bytes(problem_answer(part.error, path=part.path, trace=trace).body).strip()


def _read_entry(part: Part, view: View) -> tuple[bytes, int]:
    """Return the entry of a read partition, and the bytes of its records."""
    assert part.partition is not None
    assert part.fetched is not None
    rendered = render_records(part.fetched.data, view)
    records_bytes = len(rendered.text)  # before it becomes the page
    next_offset = part.fetched.next_offset if rendered.next_offset is None else rendered.next_offset
    part.records_count, part.next_offset = rendered.count, next_offset
    page = page_body(
        part.partition, part.fetched, rendered.text, next_offset, as_text=view.offsets_as_text
    )
    return read_entry(part.partition, part.fetched.leader_epoch, page), records_bytes


async def read_topic(exchange: Exchange, topic: str, wanted: TopicReadParameters) -> Answer:
    """Return the next page; raises what a read of any of its partitions raises."""
    partitions = topic_partitions(exchange.service, topic)
    topic_id = partitions[0].topic_id
    if wanted.filter is not None:
        filter_of(wanted.filter)  # before anything is read
    positions = _positions(wanted.page_token, partitions)
    fetch = Fetch(exchange, _request(partitions, positions, wanted))
    await fetch.begin()
    _ensure_read(fetch.parts)
    entries = await fetch.entries()
    _ensure_read(fetch.parts)
    here = encode_positions(
        topic_id,
        (
            Position(part.wanted.partition, part.next_offset, part.fetched.leader_epoch)
            for part in fetch.parts
            if part.fetched is not None  # every part is read, or the page has failed
        ),
    )
    members = {
        "topic": topic,
        "partitions": [
            msgspec.Raw(entries[id(part)]) for part in fetch.parts if part.records_count
        ],
        "next_page_token": encode_token(here),
        "is_at_end": all(part.is_at_end for part in fetch.parts),
    }
    body = to_json(members)
    exchange.ticket.exchange_answer(len(body))
    content_type = JSON_WITH_TEXT_OFFSETS if wanted.offsets == "string" else JSON
    return Answer(200, [(b"content-type", content_type), NO_STORE, VARY], body)


def topic_partitions(service: Service, topic: str) -> Sequence[Partition]:
    """Return all partitions of a topic; raises TooLarge above `max_fetch_partitions`."""
    partitions = service.partitions(topic)
    limit = service.settings.max_fetch_partitions
    if len(partitions) > limit:
        raise TooLarge(
            f"the {len(partitions)} partitions of the topic exceed max_fetch_partitions; read "
            "them one by one, or some with fetchMany",
            limit="max_fetch_partitions",
            limit_bytes=limit,
            actual_bytes=len(partitions),
        )
    return partitions


def _positions(page_token: str | None, partitions: Sequence[Partition]) -> Mapping[int, int] | None:
    """Return the next offsets that a token holds; None without one.

    Raises MalformedRequest, and LogReplaced.
    """
    if page_token is None:
        return None
    positions = parse_positions(decode_token(page_token))
    offsets = None if positions is None else next_offsets(positions, partitions)
    if offsets is None:
        raise malformed_token()
    return offsets


def next_offsets(positions: Positions, partitions: Iterable[Partition]) -> Mapping[int, int] | None:
    """Return where to go on in each partition; None if one is named that the topic has not.

    Raises LogReplaced if the topic was created again since, or one of its logs was truncated.
    """
    by_number = {partition.number: partition for partition in partitions}
    topic_id = by_number[0].topic_id
    if positions.topic_id not in {"", topic_id}:
        raise LogReplaced(
            "what is resumed was read from another topic of this name",
            expected_log_id=positions.topic_id,
            log_id=topic_id,
        )
    if not positions.of.keys() <= by_number.keys():
        return None
    for number, _, epoch in positions.of.values():
        if epoch is not None:
            partition = by_number[number]
            ensure_log_id(partition, partition.log_id_at(epoch))
    return {one.partition: one.next_offset for one in positions.of.values()}


def _request(
    partitions: Sequence[Partition],
    positions: Mapping[int, int] | None,
    wanted: TopicReadParameters,
) -> FetchRequest:
    """Return the fetch of all partitions.

    A partition that the token does not name was added since: it is read from its start.
    """

    def start(number: int) -> int | str:
        return wanted.offset if positions is None else positions.get(number, "earliest")

    return FetchRequest(
        partitions=[
            PartitionFetch(
                topic=one.topic,
                partition=one.number,
                offset=start(one.number),
                isolation=wanted.isolation,
                on_out_of_range=wanted.on_out_of_range,
            )
            for one in partitions
        ],
        max_bytes=wanted.max_bytes,
        max_records=wanted.max_records,
        encoding=wanted.encoding,
        offsets=wanted.offsets,
        filter=wanted.filter,
    )


def _ensure_read(parts: Sequence[Part]) -> None:
    for part in parts:
        if part.error is not None:
            raise part.error
