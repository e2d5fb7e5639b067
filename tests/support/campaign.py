"""A campaign: one run for each seed, with progress, until one fails or all are done.

Tests start it as `make` does: in a process of its own, without branch coverage.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).parents[2]
DAY_S: Final = 24 * 3_600


def options_of(name: str, runs: int) -> argparse.ArgumentParser:
    """The options that all campaigns have: the first seed, how many runs, whether to go on."""
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000_000)
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--keep-going", action="store_true", help="report all failures")
    return parser


def run_campaign(
    options: argparse.Namespace, play: Callable[[int], object | None], *, every: int
) -> int:
    """Run each seed and return how many failed; `play` returns the report of a failure."""
    started = time.perf_counter()
    failures = done = 0
    for seed in range(options.seed, options.seed + options.runs):
        failure = play(seed)
        done += 1
        if failure is not None:
            failures += 1
            tell(f"after {time.perf_counter() - started:.1f} s: {failure}")
            if not options.keep_going:
                break
        if done % every == 0:
            tell(f"{done:,} of {options.runs:,} runs, {time.perf_counter() - started:,.0f} s")
    took = time.perf_counter() - started
    tell(f"{done:,} runs from seed {options.seed}: {failures} failed, {took:,.0f} s")
    return failures


def tell(*lines: object) -> None:
    """Print lines at once, to show the progress."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def played(program: str, *arguments: str, folder: Path = CHECKOUT) -> str:
    """Return what a campaign tells; packages that the folder has are taken from there."""
    done = subprocess.run(
        [sys.executable, "-m", program, *arguments],
        cwd=folder,  # where Python looks first
        env={"PYTHONPATH": str(CHECKOUT), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def ensure_clean(program: str, seed: int, runs: int) -> None:
    """Fail with what is told unless no run from the seed on fails."""
    told = played(program, "--seed", str(seed), "--runs", str(runs))
    assert f"{runs:,} runs from seed {seed}: 0 failed" in told, told


def seed_of_today(first: int, per_day: int) -> int:
    """Return the first of the seeds that this day has to itself."""
    return first + int(time.time()) // DAY_S * per_day
