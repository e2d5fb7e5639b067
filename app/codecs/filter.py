"""Filters: which records a reader wants, as one expression of a closed grammar.

    filter  = and ("or" and)*
    and     = not ("and" not)*
    not     = "not" not | "(" filter ")" | test
    test    = "exists" place | place "starts_with" string | place operator literal
    place   = "key" [pointer] | "value" [pointer] | "header." name | "offset" | "timestamp"
    pointer = a JSON Pointer (RFC 6901), or one in quotes after the place
    operator = "=" | "!=" | "<" | "<=" | ">" | ">="
    literal = a JSON string, number, true, false or null

`header.tenant = "7" and (value/amount >= 100 or exists value/urgent)`. Keys, headers and values
without a pointer are compared as text, and as JSON with anything but a string. Of several headers
of one name, one has to match. What is not there equals null and nothing else; `!=` is the opposite
of `=`. Numbers are compared with numbers only.

A filter is a pure function of one record. It knows bytes that every record it wants contains, if
there are any (`needle`), so that most of a log is not decoded.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from app.codecs.json_pointer import pointer_of
from app.errors import MalformedRequest
from engine.errors import InvalidRequestValue
from engine.records.varint import encode_varint
from engine.types import Buffer

MAX_FILTER_BYTES: Final = 2_000
MAX_TESTS: Final = 64
MAX_DEPTH: Final = 32
MAX_FILTERS: Final = 256
"""Filters that are kept ready."""

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.])
      | (?P<place>(?:key|value)(?:/[^\s()=!<>"]*)?|header\.[\w.-]*|offset|timestamp)(?![\w-])
      | (?P<word>and|or|not|exists|starts_with|true|false|null)(?![\w.-])
      | (?P<sign><=|>=|!=|=|<|>|\(|\))
    )""",
    re.VERBOSE,
)

_ABSENT: Final = object()
_ANY: Final = msgspec.json.Decoder()
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class AnyRecord(Protocol):
    """What a filter looks at."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> Buffer | None: ...
    @property
    def value(self) -> Buffer | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, Buffer | None]]: ...


Test: TypeAlias = Callable[[AnyRecord], bool]


class _Part(NamedTuple):
    """A part of a filter, and bytes of which a record that it wants contains one; None if any."""

    test: Test
    needles: frozenset[bytes] | None = None


class Filter:
    """An expression that is ready to be used."""

    __slots__ = ("_needle", "wants")

    def __init__(self, part: _Part) -> None:
        self.wants = part.test
        self._needle: re.Pattern[bytes] | None = None
        if part.needles:
            self._needle = re.compile(b"|".join(map(re.escape, sorted(part.needles))))

    def may_want(self, payload: Buffer) -> bool:
        """Whether these encoded records may have one that is wanted."""
        return self._needle is None or self._needle.search(payload) is not None


@lru_cache(maxsize=MAX_FILTERS)
def filter_of(text: str) -> Filter:
    """Return the filter of an expression; raises MalformedRequest."""
    return Filter(_Parser(text).parse())


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


class _Parser:
    """Reads one expression from left to right."""

    def __init__(self, text: str) -> None:
        if len(text.encode(errors="replace")) > MAX_FILTER_BYTES:
            raise _refused(f"it has more than {MAX_FILTER_BYTES} bytes")
        self._tokens = list(_tokens(text))
        self._index = 0
        self._tests = 0
        self._depth = 0

    def parse(self) -> _Part:
        whole = self._or()
        if self._next.kind != "end":
            raise self._unexpected("and, or, or the end")
        return whole

    @property
    def _next(self) -> _Token:
        return self._tokens[self._index]

    def _take(self, *texts: str) -> _Token | None:
        """Return the next token if it is one of these, and go on behind it."""
        token = self._next
        if token.text not in texts or token.kind not in {"word", "sign"}:
            return None
        self._index += 1
        return token

    def _unexpected(self, expected: str) -> MalformedRequest:
        token = self._next
        found = repr(token.text) if token.text else "the end"
        return _refused(f"at character {token.position} {found} stands where {expected} should be")

    def _or(self) -> _Part:
        parts = [self._and()]
        while self._take("or"):
            parts.append(self._and())
        if len(parts) == 1:
            return parts[0]
        tests = tuple(part.test for part in parts)
        needles: frozenset[bytes] | None = frozenset()
        for part in parts:
            needles = None if needles is None or part.needles is None else needles | part.needles
        return _Part(lambda record: any(test(record) for test in tests), needles)

    def _and(self) -> _Part:
        parts = [self._not()]
        while self._take("and"):
            parts.append(self._not())
        if len(parts) == 1:
            return parts[0]
        tests = tuple(part.test for part in parts)
        # The longest is the rarest, as far as can be told.
        known = [part.needles for part in parts if part.needles is not None]
        needles = max(known, key=lambda some: min(map(len, some)), default=None)
        return _Part(lambda record: all(test(record) for test in tests), needles)

    def _not(self) -> _Part:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _refused(f"it is nested more than {MAX_DEPTH} deep")
        try:
            if self._take("not"):
                test = self._not().test
                return _Part(lambda record: not test(record))
            if self._take("("):
                part = self._or()
                if not self._take(")"):
                    raise self._unexpected("and, or, or )")
                return part
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> _Part:
        self._tests += 1
        if self._tests > MAX_TESTS:
            raise _refused(f"it has more than {MAX_TESTS} tests")
        if self._take("exists"):
            place = self._place()
            return _Part(place.exists, place.needles_of(None, whole=False))
        place = self._place()
        if self._take("starts_with"):
            token = self._next
            if token.kind != "string":
                raise self._unexpected("a string in quotes")
            prefix = self._literal()
            assert isinstance(prefix, str), "its kind says so"
            return _Part(place.starts_with(prefix), place.needles_of(prefix, whole=False))
        sign = self._take("=", "!=", *_COMPARISONS)
        if sign is None:
            raise self._unexpected("=, !=, <, <=, >, >= or starts_with")
        return self._comparison(place, sign)

    def _comparison(self, place: _Place, sign: _Token) -> _Part:
        literal = self._literal()
        compare = _COMPARISONS.get(sign.text)
        if compare is not None:
            if isinstance(literal, bool) or not isinstance(literal, int | float):
                raise _refused(f"{sign.text} at character {sign.position} compares numbers")
            return _Part(place.compares(compare, literal))
        equals = place.equals(literal)
        if sign.text == "!=":
            return _Part(lambda record: not equals(record))
        needles = place.needles_of(literal, whole=True) if isinstance(literal, str) else None
        return _Part(equals, needles)

    def _place(self) -> _Place:
        token = self._next
        if token.kind != "place":
            raise self._unexpected("key, value, header.NAME, offset or timestamp")
        self._index += 1
        name, rest = token.text, ""
        if name.startswith("header."):
            name, rest = "header", name.removeprefix("header.")
            rest = rest or self._quoted(token, "the header's name")
            return _Place("header", header=rest)
        if name.startswith(("key", "value")):
            name, slash, rest = name.partition("/")
            pointer = slash + rest
            if not pointer and self._next.kind == "string" and self._is_adjacent(token):
                pointer = self._quoted(token, "the pointer")
            return _Place(name, pointer=pointer)
        return _Place(name)

    def _is_adjacent(self, token: _Token) -> bool:
        return self._next.position == token.position + len(token.text)

    def _quoted(self, token: _Token, what: str) -> str:
        if self._next.kind != "string" or not self._is_adjacent(token):
            raise self._unexpected(f"{what}, in quotes if it is not plain,")
        text = self._literal()
        assert isinstance(text, str), "its kind says so"
        return text

    def _literal(self) -> object:
        token = self._next
        if token.kind not in {"string", "number"} and token.text not in {"true", "false", "null"}:
            raise self._unexpected("a string in quotes, a number, true, false or null")
        self._index += 1
        try:
            return _ANY.decode(token.text)
        except msgspec.DecodeError as error:
            raise _refused(f"{token.text} at character {token.position}: {error}") from None


class _Place:
    """Where a test looks."""

    def __init__(self, name: str, *, header: str = "", pointer: str = "") -> None:
        self._name = name
        self._header = header
        self._has_pointer = bool(pointer)
        self._contents = _contents_of(name, header, pointer)
        """Returns the bytes of what is there, as they are stored; JSON under a pointer."""

    def exists(self, record: AnyRecord) -> bool:
        """Whether there is something, be it null."""
        if self._name == "header":
            return any(name == self._header for name, _ in record.headers)
        return bool(self._contents(record))

    def equals(self, literal: object) -> Test:
        if isinstance(literal, str):
            wanted = _encoded(literal)
            if self._name == "header":
                entry = (self._header, wanted)
                return lambda record: entry in record.headers
            if self._name == "key" and not self._has_pointer:
                return lambda record: record.key == wanted
            return lambda record: wanted in self._texts(record)
        if literal is None:
            return lambda record: all(one is None for one in self._values(record))
        return lambda record: any(_is_same(one, literal) for one in self._values(record))

    def starts_with(self, prefix: str) -> Test:
        wanted = _encoded(prefix)
        return lambda record: any(one.startswith(wanted) for one in self._texts(record))

    def compares(self, compare: Callable[[Any, Any], bool], literal: float) -> Test:
        def test(record: AnyRecord) -> bool:
            return any(
                compare(one, literal)
                for one in self._values(record)
                if isinstance(one, int | float) and not isinstance(one, bool)
            )

        return test

    def needles_of(self, text: object, *, whole: bool) -> frozenset[bytes] | None:
        """Return bytes that an encoded record has where this place has a text, or begins with it.

        A length is a zigzag varint before the bytes (Kafka's `DefaultRecord`). JSON has many
        spellings of one text, so a value or a pointer into it has none.
        """
        if self._has_pointer or self._name not in {"header", "key"}:
            return None
        content = _encoded(text) if isinstance(text, str) else b""
        if self._name == "header":
            name = _counted(_encoded(self._header))
            return frozenset({name + _counted(content) if whole else name})
        if whole:
            return frozenset({_counted(content)})
        return frozenset({content}) if content else None

    def _texts(self, record: AnyRecord) -> list[bytes]:
        """Return the texts of what is there: the bytes, and what a JSON string says."""
        texts: list[bytes] = []
        for one in self._contents(record):
            if not self._has_pointer:
                texts.append(one)
            if one[:1] == b'"' and (self._has_pointer or self._name == "value"):
                value = _decoded(one)
                if isinstance(value, str):
                    texts.append(_encoded(value))
        return texts

    def _values(self, record: AnyRecord) -> list[object]:
        """Return the values of what is there, as JSON."""
        return [_decoded(one) for one in self._contents(record)]


def _contents_of(name: str, header: str, pointer: str) -> Callable[[AnyRecord], list[bytes]]:
    if name == "header":
        return lambda record: [
            bytes(value) for one, value in record.headers if one == header and value is not None
        ]
    if name == "offset":
        return lambda record: [b"%d" % record.offset]
    if name == "timestamp":
        return lambda record: [b"%d" % record.timestamp]
    field: Callable[[AnyRecord], Buffer | None] = operator.attrgetter(name)
    if not pointer:
        return lambda record: [] if (found := field(record)) is None else [bytes(found)]
    try:
        find = pointer_of(pointer).find
    except InvalidRequestValue as error:
        raise _refused(str(error)) from None

    def part(record: AnyRecord) -> list[bytes]:
        content = field(record)
        found = None if content is None else find(content)
        return [] if found is None else [found]

    return part


def _tokens(text: str) -> Iterator[_Token]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            raise _refused(f"at character {start} {text[start : start + 20]!r} is not understood")
        yield _Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))
        position = match.end()
    yield _Token("end", "", end)


def _decoded(content: bytes) -> object:
    try:
        return _ANY.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return _ABSENT


def _is_same(value: object, literal: object) -> bool:
    """Whether two JSON values are equal; true is not 1."""
    return value == literal and isinstance(value, bool) is isinstance(literal, bool)


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _counted(content: bytes) -> bytes:
    return encode_varint(len(content)) + content


def _refused(why: str) -> MalformedRequest:
    return MalformedRequest(f"the filter cannot be used: {why}", parameter="filter")
