"""Concurrent threads of the engine, interrupted where a seed says, checked against models.

A failure prints its seed, which replays it exactly, the works of each thread, and where it stopped.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.interleavings.faults import CHECKOUT, FAULTS, Fault, play, put_back

FIXED = ((1, 400), pytest.param(401, 400, marks=pytest.mark.long))
"""Seeds from, and how many."""
FRESH_FROM = 1_000_000
FRESH_PER_DAY = 200
TODAY = time.time_ns() // (24 * 3_600 * 1_000_000_000)
LONG_FROM = 100_000
LONG_RUNS = 20_000
MOST_RUNS = 6_000


def ensure_clean(seed: int, runs: int) -> None:
    """Run them as `make interleavings` does: in a process without branch coverage."""
    told = play(CHECKOUT, "--seed", str(seed), "--runs", str(runs))
    assert f"{runs:,} runs from seed {seed}: 0 failed" in told, told


@pytest.mark.parametrize(("seed", "runs"), FIXED)
def test_every_thread_sees_the_log_before_or_after(seed: int, runs: int) -> None:
    """Concurrent appends, reads, truncation, compaction, moves and the rest are correct."""
    ensure_clean(seed, runs)


def test_every_thread_sees_the_log_before_or_after_today() -> None:
    """The same, with new random schedules."""
    ensure_clean(FRESH_FROM + TODAY * FRESH_PER_DAY, FRESH_PER_DAY)


@pytest.mark.long
def test_every_thread_sees_the_log_before_or_after_for_long() -> None:
    """The same, in twenty thousand schedules."""
    ensure_clean(LONG_FROM, LONG_RUNS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_that_is_put_back_is_found(fault: Fault, tmp_path: Path) -> None:
    """The tester finds each fault that the engine once had among the works concerned."""
    put_back(fault, tmp_path)
    works, first = ",".join(fault.works), str(fault.seed)
    told = play(tmp_path, "--works", works, "--seed", first, "--runs", str(MOST_RUNS), "--whole")
    assert "1 failed" in told, told
    assert "again: make interleavings SEED=" in told


@pytest.mark.long
@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if not fault.is_rare], ids=lambda fault: fault.name
)
def test_a_fault_that_is_put_back_is_found_among_all_works(fault: Fault, tmp_path: Path) -> None:
    """And among all works, in a minute of processor time if nothing else runs."""
    put_back(fault, tmp_path)
    told = play(tmp_path, "--seed", "1", "--runs", str(MOST_RUNS))
    assert "1 failed" in told, told
