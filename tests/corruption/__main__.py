"""`make damage SEED=… RUNS=…`: data directories, a file of each damaged at random, and judged."""

from __future__ import annotations

import logging
import resource
import sys

from tests.corruption.cases import Tally, play
from tests.support.campaign import options_of, run_campaign, tell

MOST_MEMORY = 2 << 30


def main() -> int:
    options = options_of("make damage", runs=1_000).parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    logging.disable()
    tally = Tally()
    failures = run_campaign(options, lambda seed: play(seed, tally), every=1_000)
    tell(f"{options.runs - tally.again:,} different cases", tally)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
