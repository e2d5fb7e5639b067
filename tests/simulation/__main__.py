"""`make simulate SEED=… RUNS=…`: a number of runs from a seed on; the first failure ends it."""

from __future__ import annotations

import sys

from tests.simulation.runs import run
from tests.support.campaign import options_of, run_campaign


def main() -> int:
    options = options_of("make simulate", runs=1_000).parse_args()
    return 1 if run_campaign(options, run, every=100) else 0


if __name__ == "__main__":
    sys.exit(main())
