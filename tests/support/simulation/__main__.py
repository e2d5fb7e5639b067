"""`make simulate SEED=… RUNS=…`: so many runs from a seed on; the first failure ends it."""

from __future__ import annotations

import argparse
import sys
import time

from tests.support.simulation.runs import run

PROGRESS_EVERY = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate")
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000_000)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--keep-going", action="store_true", help="report all failures")
    options = parser.parse_args()
    started = time.perf_counter()
    failures = 0
    for done in range(options.runs):
        failure = run(options.seed + done)
        if failure is not None:
            failures += 1
            tell(failure)
            if not options.keep_going:
                break
        if (done + 1) % PROGRESS_EVERY == 0:
            took = time.perf_counter() - started
            tell(f"{done + 1:,} of {options.runs:,} runs, {took:,.0f} s")
    took = time.perf_counter() - started
    tell(f"{done + 1:,} runs from seed {options.seed}: {failures} failed, {took:,.0f} s")
    return 1 if failures else 0


def tell(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
