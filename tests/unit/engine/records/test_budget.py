"""The budget of one request: the sum of all its batches, in bytes and in processor time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count

import pytest

from engine.config import LogConfig
from engine.errors import DecodeBudgetSpent, TooLarge
from engine.log.analyse import AnalysisLimits, analyse
from engine.records.batch import BatchView
from engine.records.budget import DecodeBudget, DecodeLimits
from engine.records.check import check_records
from engine.records.compression import compress, decompress
from engine.records.header import Codec
from engine.types import INT64_MAX, AppendOrigin
from tests.support.builders import values_of
from tests.support.time import START_MS

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
MEBIBYTE = 1 << 20


def budget_of(
    max_bytes: int = INT64_MAX,
    max_cpu_ms: int = INT64_MAX,
    cpu_ns: Callable[[], int] = lambda: 0,
) -> DecodeBudget:
    return DecodeBudget(DecodeLimits(max_bytes, max_cpu_ms), cpu_ns=cpu_ns)


def clock_of(step_ms: int) -> Callable[[], int]:
    """Processor time that advances by a fixed amount with each reading."""
    return map(int.__mul__, count(), iter(lambda: step_ms * 1_000_000, None)).__next__


@pytest.mark.parametrize("codec", COMPRESSING)
def test_all_batches_of_a_request_share_one_budget_of_bytes(codec: Codec) -> None:
    """Each of five hundred bombs is within the limit of a batch: the third one ends the request."""
    bomb = values_of([bytes(MEBIBYTE - 20)], codec=codec)
    budget = budget_of(max_bytes=5 * MEBIBYTE // 2)
    limits = AnalysisLimits(START_MS, 64 * MEBIBYTE, budget)
    with pytest.raises(DecodeBudgetSpent, match="send fewer or smaller batches") as refusal:
        analyse(bytes(bomb) * 500, LogConfig(), AppendOrigin.CLIENT, limits, checked=False)
    facts = refusal.value.facts()
    assert (facts["limit"], facts["limit_bytes"]) == ("max_decoded_bytes", 5 * MEBIBYTE // 2)
    assert MEBIBYTE // 2 <= budget.left_bytes < MEBIBYTE, "two batches were decoded, no third one"


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_limit_of_a_batch_still_names_itself(codec: Codec) -> None:
    """A batch beyond its own limit is not counted in the request's budget."""
    with pytest.raises(TooLarge) as refusal:
        decompress(codec, compress(codec, bytes(1_000)), 999, budget=budget_of(max_bytes=5_000))
    assert refusal.value.facts()["limit"] == "max_decompressed_batch_bytes"


def test_processor_time_is_counted_over_all_batches() -> None:
    """A batch looks at the clock a few times, and many small ones are as long as a large one."""
    budget = budget_of(max_cpu_ms=100, cpu_ns=clock_of(10))
    limits = AnalysisLimits(START_MS, MEBIBYTE, budget)
    small = bytes(values_of([b"x"]))
    with pytest.raises(DecodeBudgetSpent) as refusal:
        analyse(small * 500, LogConfig(), AppendOrigin.CLIENT, limits, checked=False)
    facts = refusal.value.facts()
    assert (facts["limit"], facts["limit_ms"]) == ("max_decode_cpu_ms", 100)


def test_the_time_of_another_request_on_the_thread_does_not_count() -> None:
    """The clock is that of a thread: what passed between two parts is not counted."""
    times = iter([0, 50, 60, 10_000, 10_020])
    budget = budget_of(max_cpu_ms=100, cpu_ns=lambda: next(times) * 1_000_000)
    budget.run(budget.check)
    budget.run(budget.check)
    assert not budget.is_out_of_time


ENDLESS = {
    "empty zstd frames": (Codec.ZSTD, bytes.fromhex("28b52ffd2000010000")),
    "skippable zstd frames": (Codec.ZSTD, bytes.fromhex("502a4d1800000000")),
    "blocks of one zstd frame": (Codec.ZSTD, bytes.fromhex("02000061")),
    "empty snappy blocks": (Codec.SNAPPY, bytes.fromhex("0000000100")),
    "tiny lz4 blocks": (Codec.LZ4, bytes.fromhex("0100008061")),
}
BEGINNINGS = {
    "blocks of one zstd frame": bytes.fromhex("28b52ffd0058"),
    "empty snappy blocks": b"\x82SNAPPY\0\0\0\0\1\0\0\0\1",
    "tiny lz4 blocks": bytes.fromhex("04224d18604082"),
}
ENDS = {"blocks of one zstd frame": bytes.fromhex("03000061")}


@pytest.mark.parametrize("name", ENDLESS)
def test_frames_and_blocks_that_hold_nothing_use_up_the_time(name: str) -> None:
    """The work is in their number, not in what they decode to: it ends long before the last."""
    codec, piece = ENDLESS[name]
    payload = BEGINNINGS.get(name, b"") + piece * 100_000 + ENDS.get(name, b"")
    looks = count()
    budget = budget_of(max_cpu_ms=4, cpu_ns=lambda: next(looks) * 1_000_000)
    with pytest.raises(DecodeBudgetSpent):
        decompress(codec, payload, MEBIBYTE, budget=budget)


@pytest.mark.parametrize(
    "records", [[b"x"] * 200_000, [bytes([n % 251]) * (n % 7) for n in range(9_000)]]
)
def test_work_that_nobody_wants_any_more_ends_between_two_pieces(records: list[bytes]) -> None:
    """In the proof of right records and in the diagnosis of wrong ones alike."""

    class Gone(Exception):
        pass

    looks = count()

    def ensure_wanted() -> None:
        if next(looks) == 1:
            raise Gone

    batch = values_of(records, codec=Codec.ZSTD)
    wrong = values_of([*records, b"y"], timestamp=START_MS - 1)
    budget = budget_of()

    def check(view: BatchView) -> None:
        check_records(view, requires_keys=True, timestamp_bounds=None, budget=budget)

    for view in (BatchView(batch), BatchView(wrong)):
        looks = count()
        with pytest.raises(Gone):
            budget.run(partial(check, view), ensure_wanted)
    budget.check()


def test_the_memory_to_decode_a_batch_is_held_by_who_runs_the_work() -> None:
    """Three times the content, in this run and in no later one."""
    held: list[int] = []

    @contextmanager
    def hold(size_bytes: int) -> Iterator[None]:
        held.append(size_bytes)
        yield
        held.append(-size_bytes)

    budget = budget_of()

    def decode() -> int:
        with budget.decoding(10):
            return len(held)

    assert budget.run(decode, hold=hold) == 1
    assert held == [30, -30]
    assert budget.run(decode) == 2
