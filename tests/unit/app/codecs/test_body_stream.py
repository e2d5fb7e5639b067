"""Compressed bodies of thousands of empty members and frames: the work grows with the bytes."""

import gzip
import random
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from app.codecs.body_stream import (
    FED_BYTES,
    MAX_SMALL_MEMBERS,
    PIECE_BYTES,
    Lines,
    decode_body,
    decoder_of,
)
from app.errors import MalformedRequest
from engine.errors import DecodeBudgetSpent, TooLarge
from engine.records.budget import DecodeBudget, DecodeLimits
from engine.records.codecs.zstd import zstd
from engine.types import INT64_MAX

LIMIT = ("max_request_bytes", 1 << 30)
COMPRESS: dict[bytes, Callable[[bytes], bytes]] = {b"gzip": gzip.compress, b"zstd": zstd.compress}
EMPTY = {encoding: compress(b"") for encoding, compress in COMPRESS.items()}
EMPTY_FRAME = b"\x28\xb5\x2f\xfd\x00\x00\x01\x00\x00"
SKIPPABLE = b"\x50\x2a\x4d\x18\0\0\0\0"


def budget_of(cpu_ns: Callable[[], int] = lambda: 0) -> DecodeBudget:
    return DecodeBudget(DecodeLimits(INT64_MAX, 1_000), cpu_ns=cpu_ns)


class CopiedBytes:
    """Counts the bytes that decompressors are given and give back unused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for module, name in ((zlib, "decompressobj"), (zstd, "ZstdDecompressor")):
            monkeypatch.setattr(module, name, partial(self._Member, self, getattr(module, name)))

    class _Member:
        def __init__(self, copied: "CopiedBytes", make: Any, *args: Any, **options: Any) -> None:
            self._copied, self._member = copied, make(*args, **options)

        def decompress(self, data: bytes, max_length: int) -> bytes:
            content: bytes = self._member.decompress(data, max_length)
            member = self._member
            self._copied.count += len(data) + len(member.unused_data)
            self._copied.count += len(getattr(member, "unconsumed_tail", b""))
            return content

        def __getattr__(self, name: str) -> Any:  # as the library's
            return getattr(self._member, name)


@pytest.mark.parametrize("encoding", EMPTY)
@pytest.mark.parametrize("held", [b"", b"x" * 100_000], ids=["empty", "large"])
def test_members_are_copied_in_proportion_to_their_bytes(
    monkeypatch: pytest.MonkeyPatch, held: bytes, encoding: bytes
) -> None:
    """Twice as many members are twice the work: what follows a member is not copied for each."""
    copied = CopiedBytes(monkeypatch)
    counts = []
    member = COMPRESS[encoding](held)
    for members in (400, 800):
        copied.count = 0
        body = member * members
        content = decode_body(body, encoding, limit=LIMIT, budget=budget_of())
        assert len(content) == len(held) * members
        counts.append(copied.count / len(body))
    assert counts[1] < 1.1 * counts[0]
    assert counts[1] < 150, "bytes copied for each byte of the body"


CONTENTS = {
    "text": b"some text " * 100,
    "zeros": bytes(3_000_000),
    "several blocks": bytes(range(256)) * 4_000,
    "random": random.Random(1).randbytes(700_000),
    "nothing": b"",
}


@pytest.mark.parametrize("fed_bytes", [1, 7, 10_000_000])
@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("encoding", EMPTY)
def test_a_body_is_decoded_in_bounded_pieces_however_it_arrives(
    encoding: bytes, name: str, fed_bytes: int
) -> None:
    """Byte by byte or all at once, and whatever a few bytes expand to."""
    content = CONTENTS[name]
    if fed_bytes < 10 and name == "random":
        content = content[:5_000]
    decoder, pieces = decoder_of(encoding), []
    body = COMPRESS[encoding](content)
    for start in range(0, len(body), fed_bytes):
        decoder.feed(body[start : start + fed_bytes])
        while piece := bytes(decoder.read()):
            pieces.append(piece)
            assert decoder.held_bytes <= min(fed_bytes, len(body)) + len(content)
    decoder.close()
    assert b"".join(pieces) == content
    assert max(map(len, pieces), default=0) <= PIECE_BYTES


@pytest.mark.parametrize(("window", "is_allowed"), [(b"\x68", True), (b"\x69", False)])
def test_a_window_of_8_mib_is_the_largest(window: bytes, *, is_allowed: bool) -> None:
    """A content coding may ask for no more (RFC 9659); one with 9 MiB is refused at once."""
    decoder = decoder_of(b"zstd")
    decoder.feed(EMPTY_FRAME[:5] + window + EMPTY_FRAME[6:])
    with nullcontext() if is_allowed else pytest.raises(MalformedRequest, match="memory"):
        assert decoder.read() == b""


@pytest.mark.parametrize(
    ("options", "fed_bytes", "window_bytes"),
    [
        ({zstd.CompressionParameter.window_log: 18}, 1_000, 1 << 18),
        ({zstd.CompressionParameter.window_log: 18}, 1, 1 << 23),  # the head comes in pieces
        ({}, 1_000, 1 << 21),
    ],
)
def test_the_window_of_a_frame_counts_as_held(
    options: dict[int, int], fed_bytes: int, window_bytes: int
) -> None:
    """A long stream holds what its blocks may refer to, and nothing more once it has ended."""
    encoder = zstd.ZstdCompressor(options=options)
    body = encoder.compress(bytes(10 << 20)) + encoder.flush()
    decoder = decoder_of(b"zstd")
    held_bytes = 0
    for start in range(0, len(body), fed_bytes):
        decoder.feed(body[start : start + fed_bytes])
        while decoder.read():
            held_bytes = max(held_bytes, decoder.held_bytes)
    assert window_bytes <= held_bytes <= window_bytes + fed_bytes
    decoder.feed(b"")
    assert decoder.held_bytes == 0


def test_skippable_frames_hold_nothing() -> None:
    """Before, between and after frames."""
    body = SKIPPABLE * 500 + (COMPRESS[b"zstd"](b"x") + SKIPPABLE) * 100
    assert decode_body(body, b"zstd", limit=LIMIT, budget=budget_of()) == b"x" * 100


@pytest.mark.parametrize("encoding", [*EMPTY, b"skippable"])
@pytest.mark.parametrize("content", [b"", b"x" * 63])
def test_members_that_hold_next_to_nothing_are_refused(encoding: bytes, content: bytes) -> None:
    """Each costs as much as thousands of bytes; a thousand of them are taken."""
    if encoding == b"skippable":
        encoding, member = b"zstd", SKIPPABLE[:4] + len(content).to_bytes(4, "little") + content
    else:
        member = COMPRESS[encoding](content)
    for count, fits in ((MAX_SMALL_MEMBERS, True), (100 * MAX_SMALL_MEMBERS, False)):
        with nullcontext() if fits else pytest.raises(MalformedRequest, match="more than 1000"):
            decode_body(member * count, encoding, limit=LIMIT, budget=budget_of())


@pytest.mark.parametrize("encoding", EMPTY)
def test_members_of_short_lines_have_no_limit(encoding: bytes) -> None:
    """A program that compresses each line by itself may send for ever."""
    decoder, line = decoder_of(encoding), b"a line of a log\n" * 4
    for _ in range(5 * MAX_SMALL_MEMBERS):
        decoder.feed(COMPRESS[encoding](line))
        assert decoder.read() == line


@pytest.mark.parametrize("encoding", EMPTY)
def test_a_body_of_many_members_uses_up_its_time(encoding: bytes) -> None:
    """It ends with the budget of time, not with the body."""
    looks = 0

    def cpu_ns() -> int:
        nonlocal looks
        looks += 1
        return looks * 400_000_000

    body = COMPRESS[encoding](bytes(64)) * (10 * FED_BYTES // 16)
    with pytest.raises(DecodeBudgetSpent) as refusal:
        decode_body(body, encoding, limit=LIMIT, budget=budget_of(cpu_ns))
    assert refusal.value.facts()["limit"] == "max_decode_cpu_ms"
    assert looks < 6


def test_a_body_spends_the_budget_of_its_batches() -> None:
    """What the body decodes to is taken from what the batches inside may decode to."""
    budget = DecodeBudget(DecodeLimits(1_000, INT64_MAX))
    decode_body(gzip.compress(bytes(600)), b"gzip", limit=LIMIT, budget=budget)
    assert budget.left_bytes == 400
    with pytest.raises(DecodeBudgetSpent):
        decode_body(gzip.compress(bytes(600)), b"gzip", limit=LIMIT, budget=budget)
    with pytest.raises(TooLarge):
        decode_body(gzip.compress(bytes(300)), b"gzip", limit=("x", 200), budget=budget)


def test_an_empty_first_line_is_a_line() -> None:
    """Its end is the first byte of all."""
    lines = Lines(part_bytes=4, limit_bytes=10)
    lines.add(b"\n123456")
    assert lines.take_full() == b"\n"


@pytest.mark.parametrize("piece_bytes", [1, 7, 40, 1_000])
@pytest.mark.parametrize(("line_bytes", "is_taken"), [(40, True), (41, False)])
def test_a_line_is_too_long_however_it_was_cut_on_its_way(
    piece_bytes: int, line_bytes: int, *, is_taken: bool
) -> None:
    """The network decides what arrives together, and must not decide what is refused."""
    lines = Lines(part_bytes=20, limit_bytes=40)
    body = b"x" * line_bytes + b"\n" + b"y" * 30
    taken = []

    def feed() -> None:
        for start in range(0, len(body), piece_bytes):
            lines.add(body[start : start + piece_bytes])
            while (part := lines.take_full()) is not None:
                taken.append(part)

    if is_taken:
        feed()
    else:
        with pytest.raises(TooLarge) as refused:
            feed()
        assert refused.value.facts()["limit_bytes"] == 40
    assert taken == [body[: line_bytes + 1]] * is_taken
