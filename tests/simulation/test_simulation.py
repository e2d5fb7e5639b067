"""Whole lives of an engine, from seeds: everything that may happen, in any order, with trouble.

A failure prints its seed, which replays it exactly, and the few steps that are enough for it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.runs import changes_of, run
from tests.simulation.simulation import ROUGH_FROM, WIDE_FROM
from tests.support.campaign import ensure_clean, seed_of_today
from tests.support.filesystem import ForgetfulDisk
from tests.support.inodes import ForgetfulFile

PROGRAM = "tests.simulation"
FIXED_SEEDS = range(100)
WIDE_SEEDS = range(WIDE_FROM, WIDE_FROM + 50)
RUNS_PER_TEST = 25
FRESH_FROM = ROUGH_FROM
FRESH_PER_DAY = 50
FOUND = {
    900153: "a preallocated tail that a roll cut beside a flush does not cost the log",
    2000977: "a segment that was sealed beside a commit is synced again",
    922594: "compaction may keep what was aborted below the log start, which no start can know",
    3593: "who waits for a commit that a truncation takes away waits for nothing more",
    6002594: "a truncation that the disk had no room to end may leave a log that begins at its end",
    7008033: "a log that expired as a whole keeps its end",
    7017219: "a marker that is lost leaves its transaction open",
    7018822: "or has it end with the next marker",
    7021448: "what is missing below the log start is no damage",
    8010294: "a topic that was refused may be on a disk that had no room to take that back",
    8203865: "the stable end does not go back where a log start was raised into a gap",
    8104861: "a truncation is done though its checkpoints could not be written",
    8400013: "a retention that found no space to begin with has removed nothing",
    8013982: "the move of a partition that was made anew waits for its own turn",
    9200683: "a truncation that may not have been done leaves open what began below the log start",
    52000416: "partitions that were added to an adopted topic are completed",
    60105359: "a full time index keeps a slot for the entry that seals its segment",
    60110650: "a refused partition may still come, whatever is changed after it",
    70007773: "compaction replaces a batch of which a transaction is open",
    71000305: "a start without a snapshot forgets a transaction below the log start",
    71001865: "a sync of the file system that another log's sync failed beside commits nothing",
    71004346: "a failed sync of the file system is an error of each file that it lost pages of",
}
"""Seeds that once failed, for the engine or for the model, and what they showed."""

LONG_FROM = 2 * ROUGH_FROM
LONG_RUNS = 2_000


@pytest.mark.parametrize("first", [*FIXED_SEEDS[::RUNS_PER_TEST], *WIDE_SEEDS[::RUNS_PER_TEST]])
def test_nothing_is_lost_whatever_happens(first: int) -> None:
    """Acknowledged records stay, in order and once; what was read never changes."""
    ensure_clean(PROGRAM, first, RUNS_PER_TEST)


@pytest.mark.parametrize("part", range(0, FRESH_PER_DAY, RUNS_PER_TEST))
def test_nothing_is_lost_in_the_lives_of_the_day(part: int) -> None:
    """Each day has its own seeds; a failure names the one that replays it on any day."""
    first = seed_of_today(FRESH_FROM, FRESH_PER_DAY) + part
    ensure_clean(PROGRAM, first, RUNS_PER_TEST)


@pytest.mark.parametrize("seed", FOUND)
def test_what_a_life_has_shown_stays_true(seed: int) -> None:
    """A seed that once failed now passes."""
    assert run(seed) is None


@pytest.mark.long
@pytest.mark.parametrize("first", range(LONG_FROM, LONG_FROM + LONG_RUNS, 100))
def test_nothing_is_lost_in_many_more_lives(first: int) -> None:
    """As above, for minutes of seeds."""
    ensure_clean(PROGRAM, first, 100)


class LyingFile(ForgetfulFile):
    """A file whose sync does nothing."""

    def sync(self) -> None:
        self._enter("sync")


class LyingDisk(ForgetfulDisk):
    """A disk that reports every log file as synced without writing it."""

    file_type = LyingFile


def test_a_disk_with_a_sync_that_does_nothing_is_detected() -> None:
    """The simulator notices if a sync does nothing, and reports it with few steps."""
    failure = next(filter(None, (run(seed, LyingDisk) for seed in range(20))))
    assert len(failure.needed) < failure.steps / 2
    assert f"again: make simulate SEED={failure.seed} RUNS=1" in str(failure)
    assert run(failure.seed, LyingDisk) == failure
    assert run(failure.seed) is None


def test_a_seed_decides_everything() -> None:
    """The same seed makes the same changes to the disk, another one others."""
    assert changes_of(7) == changes_of(7)
    assert changes_of(7) != changes_of(8)
    assert changes_of(WIDE_FROM) == changes_of(WIDE_FROM) != changes_of(WIDE_FROM + 1)


@pytest.mark.long
def test_a_seed_decides_everything_in_another_process_too() -> None:
    """Neither the order of sets nor the addresses of objects matter."""
    root = Path(__file__).parents[2]
    code = "from tests.simulation.test_simulation import digest; print(digest())"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert digests == {f"{digest()}\n"}


def digest() -> str:
    """Everything that some runs did to their disks."""
    changes = [changes_of(seed) for seed in (*range(10), *WIDE_SEEDS[:10])]
    return hashlib.sha256(repr(changes).encode()).hexdigest()
