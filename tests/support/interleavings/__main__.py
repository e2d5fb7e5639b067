"""`make interleavings SEED=… RUNS=…`: schedules from a seed on; the first failure ends it."""

from __future__ import annotations

import argparse
import sys
import time

from tests.support.interleavings.locks import engine_locks
from tests.support.interleavings.runs import Variant, play, shortened
from tests.support.interleavings.schedule import ALL_WORKS

PROGRESS_EVERY = 1_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="make interleavings")
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000_000)
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--keep-going", action="store_true", help="report all failures")
    parser.add_argument("--whole", action="store_true", help="do not shorten what fails")
    parser.add_argument("--works", default="", help="names of works to draw from; default all")
    parser.add_argument("--without", default="", help="numbers of works to leave out")
    parser.add_argument("--attempt", type=int, default=0, help="other interruptions of a seed")
    options = parser.parse_args()
    names = tuple(options.works.split(",")) if options.works else ALL_WORKS
    leaves_out = frozenset(int(number) for number in options.without.split(",") if number)
    started = time.perf_counter()
    failures = 0
    with engine_locks():
        for done in range(options.runs):
            variant = Variant(options.seed + done, names, leaves_out, options.attempt)
            played = play(variant)
            took = time.perf_counter() - started
            if played.error is not None:
                failures += 1
                told = played if options.whole else shortened(played)
                tell(f"after {took:.1f} s: {told}")
                if not options.keep_going:
                    break
            if (done + 1) % PROGRESS_EVERY == 0:
                tell(f"{done + 1:,} of {options.runs:,} schedules, {took:,.0f} s")
    took = time.perf_counter() - started
    tell(f"{done + 1:,} schedules from seed {options.seed}: {failures} failed, {took:,.0f} s")
    return 1 if failures else 0


def tell(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
