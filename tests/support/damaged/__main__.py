"""`make damage SEED=… CASES=…`: data directories, a file of each damaged at random, and judged."""

from __future__ import annotations

import argparse
import logging
import resource
import sys
import time

from tests.support.damaged.cases import Tally, play

PROGRESS_EVERY = 1_000
MOST_MEMORY = 2 << 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="make damage")
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000_000)
    parser.add_argument("--cases", type=int, default=1_000)
    parser.add_argument("--keep-going", action="store_true", help="report all failures")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    logging.disable()
    started = time.perf_counter()
    tally = Tally()
    for done in range(options.cases):
        failure = play(options.seed + done, tally)
        if failure is not None:
            tell(failure)
            if not options.keep_going:
                return 1
        if (done + 1) % PROGRESS_EVERY == 0:
            tell(f"{done + 1:,} cases, {time.perf_counter() - started:,.0f} s")
    tell(tally)
    took = time.perf_counter() - started
    cases = f"{options.cases:,} cases, {options.cases - tally.again:,} different"
    tell(f"{cases}, from seed {options.seed}: {tally.failed} failed, {took:,.0f} s")
    return 1 if tally.failed else 0


def tell(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
