"""Append: parsed parameters and body bytes in, a receipt out; for fast lane and routes alike.

Small appends run on the event loop: a write into the page cache is cheaper than a hop to a thread
and back. Large and compressed ones are taken apart on a worker. Whoever wants `acks=all` waits
for the flush round that carries it; no thread waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.answers import Answer, Body
from app.commits import CommitTimedOut
from app.operations.exchange import Exchange
from app.operations.service import Service
from app.problems import AppendOutcomeUnknown, MalformedRequest
from app.translate.calls import AppendCall, with_headers
from app.translate.receipts import Place, append_headers, receipt_body
from app.translate.records_in import new_records, parse_records
from engine.errors import InvalidRecord, UnsupportedMagic
from engine.log.results import Appended
from engine.records.builder import NewRecord, build_batch
from engine.records.header import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    MAGIC_2,
    MAGIC_POSITION,
    Codec,
    parse_header,
)
from engine.types import NO_PRODUCER_ID

STATUS: Final = {"0": 202, "1": 201, "all": 201}


async def append_records(exchange: Exchange, place: Place, call: AppendCall) -> Answer:
    """Append the records of a JSON or NDJSON body as one batch."""
    service = exchange.service
    is_ndjson = exchange.brings_ndjson()
    call = with_headers(call, exchange.head)
    body = await exchange.body()
    if len(body) <= service.settings.inline_append_bytes:
        appended = _append_records(service, place, call, body, is_ndjson=is_ndjson, wakes=False)
    else:
        appended = await service.workers.write(
            lambda: _append_records(service, place, call, body, is_ndjson=is_ndjson, wakes=True)
        )
    try:
        return await _receipt(service, place, call, appended, b"records")
    except CommitTimedOut as error:
        raise _with_link(error, place, call.producer_id, call.base_sequence) from None


async def append_batches(exchange: Exchange, place: Place, call: AppendCall) -> Answer:
    """Append record batches exactly as the client encoded them: all of them, or none."""
    service = exchange.service
    exchange.ensure_batches()
    call = with_headers(call, exchange.head)
    if call.producer_id != NO_PRODUCER_ID:
        raise MalformedRequest("raw batches carry their producer inside", header="producer-id")
    body = await exchange.body()
    _ensure_magic(body)
    data = body if isinstance(body, bytearray) else bytearray(body)  # stamped in place
    if len(data) <= service.settings.inline_append_bytes and not _is_compressed(data):
        appended = _append_bytes(service, place, call, data, checked=False, wakes=False)
    else:
        appended = await service.workers.write(
            lambda: _append_bytes(service, place, call, data, checked=False, wakes=True)
        )
    try:
        return await _receipt(service, place, call, appended, b"batches")
    except CommitTimedOut as error:
        header = parse_header(data)
        raise _with_link(error, place, header.producer_id, header.base_sequence) from None


def _append_records(
    service: Service,
    place: Place,
    call: AppendCall,
    body: Body,
    *,
    is_ndjson: bool,
    wakes: bool,
) -> Appended:
    records = parse_records(
        body, is_ndjson=is_ndjson, max_records=service.settings.max_records_per_request
    )
    made = new_records(records, now_ms=service.clock.now_ms(), config=place.log.config)
    return append_new(service, place, call, made, wakes=wakes)


def append_new(
    service: Service,
    place: Place,
    call: AppendCall,
    records: Sequence[NewRecord],
    *,
    wakes: bool,
) -> Appended:
    """Build one batch, in the codec the topic asks for, and append it."""
    codec, level = _codec_of(place)
    batch = build_batch(
        records,
        codec=codec,
        level=level,
        producer_id=call.producer_id,
        producer_epoch=call.producer_epoch,
        base_sequence=call.base_sequence,
    )
    return _append_bytes(service, place, call, batch, checked=True, wakes=wakes)


def _append_bytes(
    service: Service,
    place: Place,
    call: AppendCall,
    data: bytearray,
    *,
    checked: bool,
    wakes: bool,
) -> Appended:
    """Append on this thread; on the loop's, who waits asks for the flush, once per turn."""
    return service.runtime.committer.append(
        place.log,
        data,
        acks_all=call.acks == "all",
        wakes=wakes,
        checked=checked,
        expected_end_offset=call.expected_end_offset,
        expected_tag=call.expected_tag,
    )


def _codec_of(place: Place) -> tuple[Codec, int | None]:
    """Return what the topic wants its batches compressed with; the producer's choice is none."""
    config = place.log.config
    kind = config.compression_type
    if kind in {"producer", "uncompressed"}:
        return Codec.NONE, None
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return Codec.of_label(kind), levels.get(kind)


def _ensure_magic(body: Body) -> None:
    """Tell what is not a batch of this format at all from what is a damaged one."""
    if not body:
        raise InvalidRecord("there is no batch in the body")
    if len(body) > MAGIC_POSITION and body[MAGIC_POSITION] != MAGIC_2:
        magic = body[MAGIC_POSITION]
        raise UnsupportedMagic(f"the first batch has magic {magic}; 2 is taken here", magic=magic)


def _is_compressed(data: bytearray) -> bool:
    """Whether the first batch has a codec; a body too short to tell is refused by the log."""
    position = ATTRIBUTES_POSITION + 1
    return len(data) > position and bool(data[position] & CODEC_MASK)


async def _receipt(
    service: Service, place: Place, call: AppendCall, appended: Appended, kind: bytes
) -> Answer:
    if call.acks == "all":
        await service.on_disk(place.log, appended.last_offset + 1)
    marks = place.log.watermarks
    status = 200 if appended.is_duplicate else STATUS[call.acks]
    headers = append_headers(place, appended, marks, kind)
    return Answer(status, headers, receipt_body(place, appended, marks, call.acks))


def _with_link(
    error: CommitTimedOut, place: Place, producer_id: int, sequence: int
) -> CommitTimedOut:
    """Return the error with the URL that tells the outcome, if the append has a producer."""
    if producer_id == NO_PRODUCER_ID:
        return error
    url = f"{place.path.decode()}producers/{producer_id}/appends/{sequence}"
    return AppendOutcomeUnknown(str(error), headers={"link": f'<{url}>; rel="status"'}, outcome=url)
