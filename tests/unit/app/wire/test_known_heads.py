"""A known head means what the parser would say of the same bytes."""

from typing import Any

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.wire.hot_request import HotOperations
from app.wire.known_heads import MAX_SHAPES, KnownHead, KnownHeads

LINE = b"POST /v1/topics/events/ingest HTTP/1.1"
OPERATIONS = HotOperations()


class Parsed:
    """What httptools reads in one head."""

    def __init__(self, head: bytes) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.url = b""
        self.is_complete = False
        httptools.HttpRequestParser(self).feed_data(head)

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self.is_complete = True


def head_of(*lines: bytes) -> bytes:
    return b"\r\n".join([LINE, b"Host: localhost", *lines, b"", b""])


def signed(signature: bytes, length: bytes = b"5") -> bytes:
    return head_of(b"X-Signature:  " + signature, b"Content-Length: " + length, b"X-Id: same")


def add(known_heads: KnownHeads, head: bytes) -> None:
    known_heads.add(head, understood(head))


def understood(head: bytes) -> KnownHead:
    parsed = Parsed(head)
    asked = OPERATIONS[b"POST " + parsed.url]
    assert asked is not None
    return KnownHead.of(parsed.url, parsed.headers, dict(parsed.headers), asked)


def known() -> KnownHeads:
    """What knows two signed heads of different lengths."""
    known_heads = KnownHeads(max_body_bytes=1_000)
    add(known_heads, signed(b"a1"))
    add(known_heads, signed(b"b2", b"17"))
    return known_heads


def same(found: KnownHead | None, head: bytes) -> bool:
    if found is None:
        return False
    expected = understood(head)
    return found[:4] == expected[:4] and found.asked is expected.asked


def test_values_that_differed_once_may_differ() -> None:
    """A third head has a signature and a length of its own."""
    head = signed(b"c 3", b"999")
    assert same(known().find(head), head)


def test_a_value_that_was_always_the_same_is_learned_with_the_next_head() -> None:
    """It is parsed once more."""
    known_heads = known()
    other = signed(b"c3").replace(b"same", b"new")
    assert known_heads.find(other) is None
    add(known_heads, other)
    head = signed(b"d4").replace(b"same", b"newer")
    assert same(known_heads.find(head), head)


def test_another_host_is_another_head() -> None:
    """Its host was not judged."""
    known_heads = known()
    add(known_heads, signed(b"c3").replace(b"localhost", b"127.0.0.1"))
    assert known_heads.find(signed(b"c3").replace(b"localhost", b"evil.example")) is None


def test_a_body_beyond_the_limit_is_not_known() -> None:
    """The parser's side refuses it."""
    assert known().find(signed(b"c3", b"1001")) is None


def test_heads_with_other_headers_are_known_beside_each_other() -> None:
    """Up to the limit; the others are parsed."""
    known_heads = known()
    others = [head_of(b"Content-Length: 5", b"X-%d: 1" % n) for n in range(MAX_SHAPES)]
    for other in others:
        add(known_heads, other)
    found = [same(known_heads.find(head), head) for head in [signed(b"c3"), *others]]
    assert found == [True] * MAX_SHAPES + [False]


def test_heads_of_all_lines_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit all of them are parsed again, and counted from the beginning."""
    monkeypatch.setattr("app.wire.known_heads.MAX_KNOWN_HEADS", 2)
    known_heads = KnownHeads(max_body_bytes=1_000)
    heads = [head_of(b"Content-Length: 5", b"X-%d: 1" % n) for n in range(3)]
    for head, found in zip(heads, (1, 2, 1), strict=True):
        add(known_heads, head)
        assert sum(known_heads.find(one) is not None for one in heads) == found


ODD = [b"\r\n", b"\n", b"\r", b":", b" ", b"\t", b"\x00", b"\xff"]
PIECES = [*ODD, b"a", b"0", b"Transfer-Encoding: chunked", b""]


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3), st.sampled_from(PIECES)), max_size=3)
)
@example([(len(head_of()) + 10, 0, b"\r\nTransfer-Encoding: chunked")])
def test_no_other_bytes_are_taken_for_a_known_head(changes: list[tuple[int, int, bytes]]) -> None:
    """What is found of changed bytes is what the parser reads; what it refuses is not found."""
    head = signed(b"c3", b"12")
    for place, removed, piece in changes:
        head = head[:place] + piece + head[place + removed :]
    found: Any = known().find(head)
    if found is not None:
        assert Parsed(head).is_complete
        assert same(found, head)


def test_a_length_that_is_not_a_number_is_left_to_the_parser() -> None:
    """The parser's side answers 400 to it."""
    assert known().find(signed(b"c3", b"1a")) is None


def test_a_head_whose_lines_are_not_its_headers_is_not_remembered() -> None:
    """A line that only some parsers take for one would hide in the bytes."""
    known_heads = KnownHeads(max_body_bytes=1_000)
    head = signed(b"a1")
    known_heads.add(head.replace(b"X-Id", b"X-More: 1\r\nX-Id"), understood(head))
    assert known_heads.find(head.replace(b"X-Id", b"X-More: 1\r\nX-Id")) is None
