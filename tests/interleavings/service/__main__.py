"""`make interleavings OF=service SEED=… RUNS=…`: plays from a seed on."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Generator

from tests.interleavings.service.plays import Stage, play, staged
from tests.support.campaign import options_of, run_campaign

PLAYS_OF_A_STAGE = 500


def main() -> int:
    logging.disable()
    parser = options_of("make interleavings OF=service", runs=2_000)
    parser.add_argument("--works", default="", help="operations to draw from; default all")
    options = parser.parse_args()
    operations = tuple(filter(None, options.works.split(",")))
    with asyncio.Runner() as runner:
        stages = _stages(runner)

        def play_one(seed: int) -> object | None:
            played = runner.run(play(next(stages), seed, operations))
            return None if played.error is None else played

        failures = run_campaign(options, play_one, every=500)
        stages.close()
    return 1 if failures else 0


def _stages(runner: asyncio.Runner) -> Generator[Stage]:
    while True:
        staging = staged()
        stage = runner.run(staging.__aenter__())
        try:
            for _ in range(PLAYS_OF_A_STAGE):
                yield stage
        finally:
            runner.run(staging.__aexit__(None, None, None))


if __name__ == "__main__":
    sys.exit(main())
