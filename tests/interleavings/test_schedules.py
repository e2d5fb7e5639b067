"""Concurrent threads of the engine, interrupted where a seed says, checked against models.

A failure prints its seed, which replays it exactly, the works of each thread, and where it stopped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interleavings.faults import FAULTS, Fault, put_back
from tests.support.campaign import ensure_clean, played, seed_of_today

PROGRAM = "tests.interleavings"
FIXED = ((1, 200), pytest.param(201, 600, marks=pytest.mark.long))
"""Seeds from, and how many."""
FRESH_FROM = 1_000_000
FRESH_PER_DAY = 100
LONG_FROM = 100_000
LONG_RUNS = 20_000
MOST_RUNS = 6_000


@pytest.mark.parametrize(("seed", "runs"), FIXED)
def test_every_thread_sees_the_log_before_or_after(seed: int, runs: int) -> None:
    """Concurrent appends, reads, truncation, compaction, moves and the rest are correct."""
    ensure_clean(PROGRAM, seed, runs)


def test_every_thread_sees_the_log_before_or_after_today() -> None:
    """The same, with new random schedules."""
    ensure_clean(PROGRAM, seed_of_today(FRESH_FROM, FRESH_PER_DAY), FRESH_PER_DAY)


@pytest.mark.long
def test_every_thread_sees_the_log_before_or_after_for_long() -> None:
    """The same, in twenty thousand schedules."""
    ensure_clean(PROGRAM, LONG_FROM, LONG_RUNS)


@pytest.mark.parametrize(
    "fault",
    [FAULTS[0], *(pytest.param(fault, marks=pytest.mark.long) for fault in FAULTS[1:])],
    ids=lambda fault: fault.name,
)
def test_a_fault_that_is_put_back_is_found(fault: Fault, tmp_path: Path) -> None:
    """The tester finds each fault that the engine once had among the works concerned."""
    put_back(fault, tmp_path)
    works, first = ",".join(fault.works), str(fault.seed)
    options = ("--works", works, "--seed", first, "--runs", str(MOST_RUNS), "--whole")
    told = played(PROGRAM, *options, folder=tmp_path)
    assert "1 failed" in told, told
    assert "again: make interleavings SEED=" in told


@pytest.mark.long
@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if not fault.is_rare], ids=lambda fault: fault.name
)
def test_a_fault_that_is_put_back_is_found_among_all_works(fault: Fault, tmp_path: Path) -> None:
    """And among all works, in a minute of processor time if nothing else runs."""
    put_back(fault, tmp_path)
    told = played(PROGRAM, "--seed", "1", "--runs", str(MOST_RUNS), folder=tmp_path)
    assert "1 failed" in told, told
