"""Compressed bodies of thousands of empty members and frames: the work grows with the bytes."""

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from app.codecs import body_stream
from app.codecs.body_stream import FED_BYTES, decode_body
from engine.errors import DecodeBudgetSpent, TooLarge
from engine.records.budget import DecodeBudget, DecodeLimits
from engine.types import INT64_MAX

LIMIT = ("max_request_bytes", 1 << 30)
EMPTY = {
    b"gzip": gzip.compress(b""),
    b"zstd": zstandard.compress(b""),
}
SKIPPABLE = b"\x50\x2a\x4d\x18\0\0\0\0"


def budget_of(cpu_ns: Callable[[], int] = lambda: 0) -> DecodeBudget:
    return DecodeBudget(DecodeLimits(INT64_MAX, 1_000), cpu_ns=cpu_ns)


class CopiedBytes:
    """zlib, with the bytes counted that it is given and gives back unused."""

    def __init__(self) -> None:
        self.count = 0
        self.error = zlib.error

    def decompressobj(self, window_bits: int) -> "CopiedBytes._Member":
        return self._Member(self, zlib.decompressobj(window_bits))

    class _Member:
        def __init__(self, copied: "CopiedBytes", member: Any) -> None:
            self._copied, self._member = copied, member

        def decompress(self, data: bytes, max_length: int) -> bytes:
            content: bytes = self._member.decompress(data, max_length)
            member = self._member
            self._copied.count += len(data) + len(member.unused_data) + len(member.unconsumed_tail)
            return content

        def __getattr__(self, name: str) -> Any:  # as zlib's
            return getattr(self._member, name)


@pytest.mark.parametrize("held", [b"", b"x" * 100_000], ids=["empty", "large"])
def test_gzip_members_are_copied_in_proportion_to_their_bytes(
    monkeypatch: pytest.MonkeyPatch, held: bytes
) -> None:
    """Twice as many members are twice the work: what follows a member is not copied for each."""
    counts = []
    member = gzip.compress(held)
    for members in (2_000, 4_000):
        copied = CopiedBytes()
        monkeypatch.setattr(body_stream, "zlib", copied)
        body = member * (members if not held else members // 100)
        content = decode_body(body, b"gzip", limit=LIMIT, budget=budget_of())
        assert len(content) == len(held) * members // 100
        counts.append(copied.count / len(body))
    assert counts[1] < 1.1 * counts[0]
    assert counts[1] < 100, "bytes copied for each byte of the body"


def test_skippable_frames_need_no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are; and frames share one."""
    made = []
    real = zstandard.ZstdDecompressor

    def decompressor() -> zstandard.ZstdDecompressor:
        made.append(1)
        return real()

    monkeypatch.setattr(zstandard, "ZstdDecompressor", decompressor)
    body = SKIPPABLE * 5_000 + zstandard.compress(b"x") * 100 + SKIPPABLE
    assert decode_body(body, b"zstd", limit=LIMIT, budget=budget_of()) == b"x" * 100
    assert len(made) == 1


@pytest.mark.parametrize("encoding", EMPTY)
def test_a_body_that_holds_nothing_uses_up_its_time(encoding: bytes) -> None:
    """Members and frames without content end with the budget of time, not with the body."""
    looks = 0

    def cpu_ns() -> int:
        nonlocal looks
        looks += 1
        return looks * 400_000_000

    body = EMPTY[encoding] * (10 * FED_BYTES // len(EMPTY[encoding]))
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
