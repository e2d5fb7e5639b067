"""`make interleavings OF=leases SEED=… RUNS=…`: plays from a seed on."""

from __future__ import annotations

import sys

from tests.interleavings.leases.plays import play
from tests.support.campaign import options_of, run_campaign

if __name__ == "__main__":
    options = options_of("make interleavings OF=leases", runs=10_000).parse_args()
    sys.exit(1 if run_campaign(options, play, every=2_000) else 0)
