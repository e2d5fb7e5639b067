"""Heads of appends that came before: a request with the same lines is not parsed again.

Clients send the same head again and again; only some values change, such as lengths, signatures and
delivery ids. The values that change are found in the bytes, and the others are as they were parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Self, TypeAlias

from app.codecs.calls import AppendCall, IngestCall
from app.errors import ServiceError
from app.operations.append.append import Append, BatchesAppend, RecordsAppend
from app.operations.ingest.ingest import IngestMaker
from app.operations.service import Service
from app.store.port import Partition
from app.wire.hot_request import HotOperation

MAX_KNOWN_LINES: Final = 1_024
"""Request lines whose heads are known."""

MAX_SHAPES: Final = 8
"""Known heads with one request line: clients differ in the headers that they send."""

MAX_KNOWN_HEADS: Final = 2_048
"""Of all request lines together: a head takes some 30 KiB, and a sender may invent them."""

MAX_KNOWN_HEAD_BYTES: Final = 1_024
"""A longer head is parsed each time."""

_END: Final = b"\r\n"
_LENGTH: Final = b"content-length"
_FIXED: Final = frozenset({b"host", b"connection"})
"""A head with another value of these is another head: they decide who answers, and how long."""

_VALUES: Final = re.compile(rb"[!-~](?:[ -~]*[!-~])?(?:\n[!-~](?:[ -~]*[!-~])?)*")
"""Values that all parsers read alike, one a line."""


MakeAppend: TypeAlias = Callable[[Service, Partition], Append]


class KnownHead(NamedTuple):
    """A parsed head of an append; the same bytes always mean the same."""

    url: bytes
    headers: list[tuple[bytes, bytes]]
    fields: Mapping[bytes, bytes]
    body_bytes: int
    asked: HotOperation
    append: MakeAppend
    """Makes the append; raises for a refused head."""

    @classmethod
    def of(
        cls,
        url: bytes,
        headers: list[tuple[bytes, bytes]],
        fields: Mapping[bytes, bytes],
        asked: HotOperation,
    ) -> Self:
        """Return the head with these headers; `fields` are the same by name."""
        append = _maker_of(asked, fields)
        return cls(url, headers, fields, int(fields[_LENGTH]), asked, append)


class _Shape:
    """A head in which some values change."""

    __slots__ = ("_changed", "_end", "_known", "_lines", "_literals", "_varying")

    def __init__(self, known: KnownHead, lines: list[bytes], varying: Sequence[int]) -> None:
        """`varying` are the indexes of the lines whose values change."""
        self._known = known
        self._lines = lines
        self._varying = varying
        self._changed = frozenset(known.headers[index - 1][0] for index in varying)
        self._literals: list[bytes] = []
        """The bytes before each value that changes, from the one before."""
        first = 0
        before = b""
        for index in varying:
            name, colon, value = lines[index].partition(b":")
            blanks = value[: len(value) - len(value.lstrip(b" \t"))]
            between = [*lines[first:index], name + colon + blanks]
            self._literals.append(before + _END.join(between))
            first, before = index + 1, _END
        self._end = before + _END.join(lines[first:])

    def read(self, head: bytes) -> KnownHead | None:
        """Return what the head means; None if it has another shape."""
        if not self._varying:
            return self._known if head == self._end else None
        values: list[bytes] = []
        position = 0
        for literal in self._literals:
            if not head.startswith(literal, position):
                return None
            position += len(literal)
            end = head.find(_END, position)
            values.append(head[position:end])
            position = end
        if head[position:] != self._end or not _VALUES.fullmatch(b"\n".join(values)):
            return None
        return self._with(values)

    def _with(self, values: Sequence[bytes]) -> KnownHead | None:
        """Return the head with these values; None if its length is not a number."""
        known = self._known
        headers, fields = [*known.headers], {**known.fields}
        for index, value in zip(self._varying, values, strict=True):
            name = headers[index - 1][0]
            headers[index - 1] = (name, value)
            fields[name] = value
        length = fields[_LENGTH]
        if not length.isdigit():
            return None
        append = self._append_of(fields)
        return KnownHead(known.url, headers, fields, int(length), known.asked, append)

    def _append_of(self, fields: Mapping[bytes, bytes]) -> MakeAppend:
        """Return what makes an append with these values."""
        append = self._known.append
        if isinstance(append, IngestMaker):
            return append.with_values(fields, self._changed)
        return append if self._changed == {_LENGTH} else _maker_of(self._known.asked, fields)

    def widened(self, known: KnownHead, lines: list[bytes]) -> _Shape | None:
        """Return the shape that this head has too; None if it differs in more than values."""
        if len(lines) != len(self._lines):
            return None
        varying = set(self._varying)
        for index, (line, other) in enumerate(zip(lines, self._lines, strict=True)):
            if line != other:
                name = line.partition(b":")[0]
                if name != other.partition(b":")[0] or name.lower() in _FIXED:
                    return None
                varying.add(index)
        return _Shape(known, lines, sorted(varying))


class KnownHeads:
    """The known heads of one server. Belongs to the event loop."""

    def __init__(self, max_body_bytes: int) -> None:
        """A head with a larger body is not known."""
        self._max_body_bytes = max_body_bytes
        self._shapes: dict[bytes, list[_Shape]] = {}
        """By request line."""
        self._count = 0

    def find(self, head: bytes) -> KnownHead | None:
        """Return what a whole head means; None if it must be parsed."""
        for shape in self._shapes.get(head[: head.find(_END)], ()):
            known = shape.read(head)
            if known is not None and known.body_bytes <= self._max_body_bytes:
                return known
        return None

    def add(self, head: bytes, known: KnownHead) -> None:
        """Remember a head that was parsed, unless its bytes are not exactly that head.

        Counting lines excludes heads whose line ends only some parsers accept.
        """
        is_plain = len(head) <= MAX_KNOWN_HEAD_BYTES and head.startswith(b"POST ")
        if not is_plain or self.find(head) is not None:
            return
        lines = head.split(_END)
        if len(lines) != len(known.headers) + 3 or head.count(b"\n") != len(lines) - 1:
            return
        is_new = lines[0] not in self._shapes
        if (is_new and len(self._shapes) >= MAX_KNOWN_LINES) or self._count >= MAX_KNOWN_HEADS:
            self._shapes.clear()
            self._count = 0
        shapes = self._shapes.setdefault(lines[0], [])
        for index, shape in enumerate(shapes):
            widened = shape.widened(known, lines)
            if widened is not None:
                shapes[index] = widened
                return
        if len(shapes) < MAX_SHAPES:
            shapes.append(_Shape(known, lines, ()))
            self._count += 1


def _maker_of(asked: HotOperation, fields: Mapping[bytes, bytes]) -> MakeAppend:
    """Return what makes an append with this head."""
    call = asked.call
    if isinstance(call, IngestCall):
        return IngestMaker(fields, call)
    assert isinstance(call, AppendCall)
    kind = RecordsAppend if asked.operation == "appendRecords" else BatchesAppend
    with suppress(ServiceError):
        return partial(kind, options=kind.options_of(fields, call))
    return partial(_refused, kind, fields, call)


def _refused(
    kind: type[Append],
    fields: Mapping[bytes, bytes],
    call: AppendCall,
    service: Service,
    partition: Partition,
) -> Append:
    """Raise the refusal of a head: each request has an error of its own."""
    return kind(service, partition, kind.options_of(fields, call))
