"""Produce: one request to one topic or partition, one offset or error a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokafka.errors import MessageSizeTooLargeError

from app.api.rest_v2.errors import message_of, record_error_code
from app.api.rest_v2.media import answer_of, embedded_in, ensure_takes_answer
from app.api.rest_v2.records import Target, parse_produce
from app.codecs.calls import AppendCall, ensure_no_conditions
from app.http.answers import Answer
from app.operations.append.append_topic import Outcome, Spread, Written, append_parts
from app.operations.exchange import Exchange
from engine.errors import InvalidRecord, TooLarge

KAFKA_TOO_LARGE: Final = MessageSizeTooLargeError.description
"""Kafka's own description of the error, which the proxies pass on."""


async def produce(
    exchange: Exchange, topic: str, partition: int | None, *, is_async: bool
) -> Answer:
    """Append the records of a body; answer when they are on disk, or at once if `is_async`.

    If nothing was written at all, what the first partition met is the error of the request. A
    topic that is not there is reported before a format that is not accepted, as Karapace does, and
    records that are too large for the topic are 422 with an entry each.
    """
    service = exchange.service
    ensure_takes_answer(exchange.head)
    partitions = service.topic(topic).partitions
    if partition is not None:
        service.partition(topic, partition)
    embedded = embedded_in(exchange.head)
    ensure_no_conditions(exchange.head)
    sticky = service.sticky_partition(topic, partitions)
    target = Target(service.any_partition(topic).config, partitions, partition, sticky)
    body = await exchange.body()

    def parse() -> Spread:
        return parse_produce(
            body,
            embedded,
            target,
            now_ms=service.clock.now_ms(),
            max_records=service.settings.max_records_per_request,
        )

    if len(body) <= service.settings.inline_append_bytes:
        spread = parse()
    else:
        spread = await exchange.write(parse)
    for number in spread.parts:
        service.partition(topic, number)  # all of them are there, or nothing is written
    call = AppendCall("0" if is_async else "all")
    try:
        outcomes = await append_parts(exchange, topic, call, spread)
    except TooLarge as error:
        refused = [_failure(error) for _ in spread.chosen]
        raise InvalidRecord(str(error), offsets=refused) from None
    if is_async:
        return Answer(204, [], b"")
    report = {
        "offsets": _offsets(spread, outcomes),
        "key_schema_id": None,
        "value_schema_id": None,
    }
    return answer_of(exchange.head, report)


def _offsets(spread: Spread, outcomes: Mapping[int, Outcome]) -> list[dict[str, object]]:
    """Return one entry a record in input order: where it is, or why it is not."""
    next_offsets = {
        partition: outcome.appended.base_offset
        for partition, outcome in outcomes.items()
        if isinstance(outcome, Written)
    }
    told = {
        partition: _failure(outcome)
        for partition, outcome in outcomes.items()
        if isinstance(outcome, Exception)
    }
    entries: list[dict[str, object]] = []
    for partition in spread.chosen:
        if partition in told:
            entries.append(told[partition])
            continue
        offset = next_offsets[partition]
        entries.append(
            {"partition": partition, "offset": offset, "error_code": None, "error": None}
        )
        next_offsets[partition] = offset + 1
    return entries


def _failure(error: Exception) -> dict[str, object]:
    return {
        "partition": None,
        "offset": None,
        "error_code": record_error_code(error),
        "error": KAFKA_TOO_LARGE if isinstance(error, TooLarge) else message_of(error),
    }
