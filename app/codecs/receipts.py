"""Answers as bytes: receipts, offsets and pages, without a model in between.

The models in `schemas` describe these bytes; the contract tests compare the two.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

import msgspec

from app.codecs.calls import ReadCall
from app.codecs.selection import ACCEPT_RANGES
from app.http.answers import (
    BINARY,
    JSON,
    NO_STORE,
    Answer,
    Headers,
    etag_of,
    json_answer,
)
from app.store.port import ArchiveMarks, Partition
from engine.fs.names import log_name
from engine.log.read.segment_files import FileKind, SegmentFile
from engine.log.results import Appended, Fetched, LogTag, ReadEnd, ReadPath
from engine.state.watermarks import Watermarks
from engine.types import FetchIsolation

_RELEASE: Final = version("tidelog").encode()
_IMMUTABLE_TAG: Final = re.compile(rb'"[^".]+\.[0-9]+\.[0-9]{1,19}\.([0-9]{1,19})\.')

MARKS_BYTES: Final = 256
"""Upper bound for the bytes of a log's offsets in a page."""


def receipt_body(partition: Partition, appended: Appended, marks: Watermarks, acks: str) -> bytes:
    """Return the receipt of one append; `marks` as `marks_of` returns them."""
    return (
        b'%b%d,"last_offset":%d,"count":%d,"timestamp":%d,"duplicate":%b,"acks":"%b",'
        b'"log_start_offset":%d,"high_watermark":%d,"log_end_offset":%d}'
        % (
            partition.receipt_prefix,
            appended.base_offset,
            appended.last_offset,
            appended.records_count,
            appended.timestamp,
            b"true" if appended.is_duplicate else b"false",
            acks.encode(),
            marks.log_start_offset,
            marks.high_watermark,
            marks.log_end_offset,
        )
    )


def marks_of(partition: Partition, appended: Appended) -> Watermarks:
    """Return the offsets at the time of the answer, unless the log was truncated since the append.

    Then the location and the offsets in one answer would be of two logs.
    """
    marks = partition.watermarks
    before, after = appended.watermarks.leader_epoch, marks.leader_epoch
    if before == after or partition.log_id_at(before) == partition.log_id_at(after):
        return marks
    return appended.watermarks


def stream_receipt_body(
    partition: Partition, appended: Appended, marks: Watermarks, acks: str, lines: int
) -> bytes:
    """Return the receipt of a body that was appended in parts."""
    whole = receipt_body(partition, appended, marks, acks)
    return b'%b,"lines":%d}' % (whole[:-1], lines)


def receipt_head(partition: Partition, appended: Appended, marks: Watermarks, kind: bytes) -> bytes:
    """Return the header lines of a receipt: the location of the records, and the log's offsets.

    `marks` as `marks_of` returns them.
    """
    if not partition.is_local:
        return _remote_receipt_head(partition, appended, marks, kind)
    epoch, end_offset, crc = appended.tag
    path, log_id = partition.path, partition.log_id_at(epoch).encode()
    next_offset = appended.last_offset + 1
    return (
        b"content-type: application/json\r\n"
        b"cache-control: no-store\r\n"
        b"location: %b%b?offset=%d&end_offset=%d&log_id=%b\r\n"
        b'etag: "%d-%d-%08x"\r\n'
        b"log-id: %b\r\n"
        b"log-start-offset: %d\r\n"
        b"log-high-watermark: %d\r\n"
        b"log-last-stable-offset: %d\r\n"
        b"log-end-offset: %d\r\n"
        b"log-next-offset: %d\r\n"
        b"log-leader-epoch: %d\r\n"
        b'link: <%b%b?offset=%d&log_id=%b>; rel="next"\r\n'
    ) % (
        path, kind, appended.base_offset, next_offset, log_id,
        epoch, end_offset, crc, log_id,
        marks.log_start_offset, marks.high_watermark, marks.last_stable_offset,
        marks.log_end_offset, next_offset, epoch,
        path, kind, next_offset, log_id,
    )  # fmt: skip


def _remote_receipt_head(
    partition: Partition, appended: Appended, marks: Watermarks, kind: bytes
) -> bytes:
    """Return header lines without an ETag, and without a location if the offset is unknown."""
    is_known = appended.base_offset >= 0
    next_offset = appended.last_offset + 1 if is_known else marks.high_watermark
    lines: Headers = [
        (b"content-type", JSON),
        NO_STORE,
        *mark_headers(partition, marks, next_offset),
    ]
    if is_known:
        path = partition.path + kind
        log_id = partition.log_id_at(appended.tag.leader_epoch).encode()
        place = (path, appended.base_offset, next_offset, log_id)
        lines += [
            (b"location", b"%b?offset=%d&end_offset=%d&log_id=%b" % place),
            (b"link", b'<%b?offset=%d&log_id=%b>; rel="next"' % (path, next_offset, log_id)),
        ]
    return b"".join([b"%b: %b\r\n" % line for line in lines])


def header_list(head: bytes) -> Headers:
    """Return header lines in ASGI's form."""
    lines = head.split(b"\r\n")[:-1]
    return [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]


def mark_headers(partition: Partition, marks: Watermarks, next_offset: int) -> Headers:
    """Return the log's id and offsets, from one snapshot."""
    epoch = marks.leader_epoch
    return [
        (b"log-id", partition.log_id_at(epoch).encode()),
        (b"log-start-offset", b"%d" % marks.log_start_offset),
        (b"log-high-watermark", b"%d" % marks.high_watermark),
        (b"log-last-stable-offset", b"%d" % marks.last_stable_offset),
        (b"log-end-offset", b"%d" % marks.log_end_offset),
        (b"log-next-offset", b"%d" % next_offset),
        (b"log-leader-epoch", b"%d" % epoch),
    ]


def shown_marks(marks: Watermarks) -> dict[str, object]:
    """Return the offsets as members of an answer."""
    return {
        "log_start_offset": marks.log_start_offset,
        "high_watermark": marks.high_watermark,
        "last_stable_offset": marks.last_stable_offset,
        "log_end_offset": marks.log_end_offset,
    }


def log_answer(
    partition: Partition,
    body: Mapping[str, object],
    *,
    marks: Watermarks | None = None,
    status: int = 200,
    etag: LogTag | None = None,
) -> Answer:
    """Return an answer about a log, with its offsets (`marks`, or the current ones)."""
    marks = marks or partition.watermarks
    headers = mark_headers(partition, marks, marks.high_watermark)
    if etag is not None:
        headers.append((b"etag", etag_of(*etag)))
    return json_answer(to_json({**shown_marks(marks), **body}), status=status, headers=headers)


def offsets_body(partition: Partition, marks: Watermarks) -> bytes:
    """Return all offsets of one log."""
    archive = partition.archive
    return (
        b'{"log_start_offset":%d,"high_watermark":%d,"last_stable_offset":%d,'
        b'"log_end_offset":%d,"leader_epoch":%d,"recovery_point":%d,%b"log_id":"%b"}'
        % (
            marks.log_start_offset,
            marks.high_watermark,
            marks.last_stable_offset,
            marks.log_end_offset,
            marks.leader_epoch,
            partition.recovery_point,
            b"" if archive is None else _members(shown_archive(archive)),
            partition.log_id_at(marks.leader_epoch).encode(),
        )
    )


def shown_archive(archive: ArchiveMarks | None) -> dict[str, int]:
    """Return which part of a log is archived, as members of an answer; none without an archive."""
    marks = {} if archive is None else archive._asdict()
    return {name: offset for name, offset in marks.items() if offset is not None}


def _members(numbers: Mapping[str, int]) -> bytes:
    return b"".join(b'"%b":%d,' % (name.encode(), number) for name, number in numbers.items())


def offsets_headers(partition: Partition, marks: Watermarks, tag: LogTag | None) -> Headers:
    """Return the headers of an offsets answer; appends accept its ETag, if any, in If-Match."""
    end = marks.high_watermark
    url = b"%brecords?offset=%d&log_id=%b" % (
        partition.path,
        end,
        partition.log_id_at(marks.leader_epoch).encode(),
    )
    headers = mark_headers(partition, marks, end)
    headers.append((b"link", b'<%b>; rel="next"' % url))
    if tag is not None:
        headers.append((b"etag", etag_of(*tag)))
    return headers


def page_frame_bytes(partition: Partition) -> int:
    """Return an upper bound for the bytes that `page_body` adds to the records."""
    return len(partition.page_prefix) + MARKS_BYTES


def page_body(
    partition: Partition,
    fetched: Fetched | None,
    text: bytearray,
    next_offset: int,
    *,
    as_text: bool,
) -> bytearray:
    """Return a page as one JSON object: the array of its records and the other members.

    The offsets are those of `fetched`; None leaves them out.
    """
    number = b'"%d"' if as_text else b"%d"
    text[:0] = partition.page_prefix
    text += b',"next_offset":' + number % next_offset
    if fetched is not None:
        marks = fetched.watermarks
        template = (
            b',"log_start_offset":N,"high_watermark":N,'
            b'"last_stable_offset":N,"log_end_offset":N,"leader_epoch":%d'
        ).replace(b"N", number)
        text += template % (
            marks.log_start_offset,
            marks.high_watermark,
            marks.last_stable_offset,
            marks.log_end_offset,
            fetched.leader_epoch,
        )
    text += b"}"
    return text


def file_path(partition: Partition, base_offset: int, kind: FileKind) -> bytes:
    """Return the download path of a segment's file."""
    return b"%bsegments/%d/%b" % (partition.path, base_offset, kind.value.encode())


def file_etag(partition: Partition, base_offset: int, kind: FileKind, file: SegmentFile) -> bytes:
    """Return the strong ETag of a file's visible bytes."""
    log_id = partition.log_id_at(file.marks.leader_epoch).encode()
    parts = (log_id, base_offset, kind.value.encode(), file.version.encode())
    return b'"%b.%d.%b.%b"' % parts


def file_headers(
    partition: Partition, base_offset: int, kind: FileKind, file: SegmentFile
) -> Headers:
    """Return the headers of a download without length, tag and caching."""
    name = log_name(base_offset).removesuffix(FileKind.LOG.value) + kind.value
    headers: Headers = [
        (b"content-type", BINARY),
        (b"content-disposition", b'attachment; filename="%b"' % name.encode()),
        ACCEPT_RANGES,
        *mark_headers(partition, file.marks, file.next_offset),
    ]
    has_next = file.next_offset < file.marks.high_watermark
    if has_next and kind is not FileKind.TRANSACTION_INDEX:
        path = file_path(partition, file.next_offset, kind)
        headers.append((b"link", b'<%b>; rel="next"' % path))
    return headers


def read_headers(
    partition: Partition,
    call: ReadCall,
    fetched: Fetched,
    next_offset: int,
    kind: bytes,
    *,
    cut_by: str = "",
) -> Headers:
    """Return the headers of a read without type and caching.

    `cut_by` is the bound that ended the answer before the end of the read, if there is one. There
    is no next page once `end_offset` is reached.
    """
    headers = mark_headers(partition, fetched.watermarks, next_offset)
    if call.end_offset is None or next_offset < call.end_offset:
        log_id = partition.log_id_at(fetched.leader_epoch).encode()
        headers.append((b"link", _next_link(partition, call, next_offset, kind, log_id)))
    if call.explain:
        ended_by = (cut_by or fetched.ended_by.value).encode()
        headers.append((b"log-explain", _explanation(fetched.path, ended_by)))
    return headers


def _next_link(
    partition: Partition, call: ReadCall, next_offset: int, kind: bytes, log_id: bytes
) -> bytes:
    """Return the next page's URL: the same parameters from the next offset, of this log."""
    kept = [
        part
        for part in call.query.split(b"&")
        if part and part.partition(b"=")[0] not in {b"offset", b"last", b"log_id"}
    ]
    query = b"&".join([b"offset=%d" % next_offset, *kept, b"log_id=" + log_id])
    return b'<%b%b?%b>; rel="next"' % (partition.path, kind, query)


def _explanation(path: ReadPath | None, ended_by: bytes) -> bytes:
    if path is None:
        return b"ended_by=%b" % ended_by
    return (
        b"segment_base_offset=%d; index_entry_offset=%d; index_entry_position=%d; position=%d; "
        b"scanned_bytes=%d; ended_by=%b" % (*path, ended_by)
    )


def is_immutable(
    partition: Partition, call: ReadCall, fetched: Fetched, next_offset: int, cut_by: str
) -> bool:
    """Whether this answer is immutable.

    It must name the log that was read, start at a number, end because of a bound in the URL and not
    at the end of the data or a limit of the service, be completely below what its reader may see,
    and not be subject to compaction. `cut_by` is what ended it before the end of the read.
    """
    if not may_be_immutable(partition, call):
        return False
    if call.log_id != partition.log_id_at(fetched.leader_epoch):
        return False
    if cut_by:
        is_bound_in_url = cut_by in {"end_offset", "max_records"}
    elif fetched.ended_by is ReadEnd.MAX_BYTES:
        is_bound_in_url = call.max_bytes is not None
    else:
        is_bound_in_url = fetched.ended_by is ReadEnd.END_OFFSET
    marks = fetched.watermarks
    committed = call.isolation is FetchIsolation.TXN_COMMITTED
    bound = marks.last_stable_offset if committed else marks.high_watermark
    return is_bound_in_url and next_offset <= bound


def may_be_immutable(partition: Partition, call: ReadCall) -> bool:
    """Whether an answer to this call can be immutable, whatever is found."""
    return (
        call.log_id is not None
        and call.start.offset is not None
        and not call.explain
        and call.is_end_fixed
        and call.on_out_of_range == "error"  # otherwise the log start decides, which moves
        and not partition.config.is_compacted
    )


def immutable_etag(
    partition: Partition,
    call: ReadCall,
    media_type: bytes,
    next_offset: int,
    fetched: Fetched | None = None,
) -> bytes | None:
    """Return the strong ETag of an immutable answer that ends at an offset.

    It depends on all that the bytes depend on: the request, the release, and the version of what is
    stored, as it was fetched or is now. None if that cannot be said without the data.
    """
    assert call.log_id is not None, "an immutable answer names its log"
    start = call.start.offset
    assert start is not None, "an immutable answer starts at a number"
    version = partition.content_version(start, next_offset, fetched)
    if version is None:
        return None
    question = b"\n".join((_RELEASE, call.query, media_type, version.encode()))
    digest = hashlib.blake2s(question, digest_size=12).hexdigest()
    return b'"%b.%d.%d.%b"' % (call.log_id.encode(), start, next_offset, digest.encode())


def end_in_tag(tag: bytes) -> int | None:
    """Return the end of the answer that a tag of `immutable_etag` was made for."""
    match = _IMMUTABLE_TAG.match(tag)
    return None if match is None else int(match[1])


def to_json(value: object) -> bytes:
    """Return a value of plain members as JSON."""
    return msgspec.json.encode(value)
