"""`make interleavings SEED=… RUNS=…`: schedules from a seed on; the first failure ends it."""

from __future__ import annotations

import sys

from tests.interleavings.locks import engine_locks
from tests.interleavings.runs import Variant, play, shortened
from tests.interleavings.schedule import ALL_WORKS
from tests.support.campaign import options_of, run_campaign


def main() -> int:
    parser = options_of("make interleavings", runs=5_000)
    parser.add_argument("--whole", action="store_true", help="do not shorten what fails")
    parser.add_argument("--works", default="", help="names of works to draw from; default all")
    parser.add_argument("--without", default="", help="numbers of works to leave out")
    parser.add_argument("--attempt", type=int, default=0, help="other interruptions of a seed")
    options = parser.parse_args()
    names = tuple(options.works.split(",")) if options.works else ALL_WORKS
    leaves_out = frozenset(int(number) for number in options.without.split(",") if number)

    def play_one(seed: int) -> object | None:
        played = play(Variant(seed, names, leaves_out, options.attempt))
        if played.error is None:
            return None
        return played if options.whole else shortened(played)

    with engine_locks():
        return 1 if run_campaign(options, play_one, every=1_000) else 0


if __name__ == "__main__":
    sys.exit(main())
