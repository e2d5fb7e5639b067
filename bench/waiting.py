"""Readers that wait: what they take while nothing comes, and how soon a commit is with them all."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from app.client.connection import topic_path
from bench.crowd import Crowd, CrowdResult, run_crowd
from bench.figures import Figure

if TYPE_CHECKING:
    from bench.measures import Bench

_TOPIC: Final = "waiting"
_READERS: Final = 1_000  # of either kind
_MIB: Final = 1 << 20


def waiting(bench: Bench) -> list[Figure]:
    """Put the readers at the end of a partition, then commit one record after the other."""
    bench.create_topic(_TOPIC, partitions=1)
    address = urlsplit(bench.service.url)
    crowd = Crowd(
        host=address.hostname or "",
        port=address.port or 0,
        pid=bench.service.pid,
        path=topic_path(_TOPIC, 0),
        polls=_READERS,
        tails=_READERS,
        commits=max(3, round(bench.seconds * 3)),
    )
    return figures_of(run_crowd(crowd))


def figures_of(result: CrowdResult) -> list[Figure]:
    """Return what a crowd takes, and how soon the last one of its readers has a commit."""
    both = zip(result.polls_s, result.tails_s, strict=True)
    commits = [[*polls, *tails] for polls, tails in both]
    middle_ms = _median_ms([statistics.median(commit) for commit in commits])
    count = len(commits[0])
    tails_ms = _median_ms([max(commit) for commit in result.tails_s])
    polls_ms = _median_ms([max(commit) for commit in result.polls_s])
    return [
        Figure(
            f"{count:,} idle readers: long polls and tails",
            result.grown_bytes / _MIB,
            "MiB",
            target=50,
            is_ceiling=True,
            note=f"{result.grown_bytes / count / 1024:.1f} KiB each, socket and all",
        ),
        Figure(
            "a commit is with all readers",
            _median_ms([max(commit) for commit in commits]),
            "ms",
            target=50,
            is_ceiling=True,
            note=(
                "from the append on, its flush included; "
                f"acknowledged after {_median_ms(result.acknowledged_s):.1f} ms, with the median "
                f"reader after {middle_ms:.1f} ms, with all tails after {tails_ms:.1f} ms, with "
                f"all polls after {polls_ms:.1f} ms; "
                f"medians of {len(commits)} commits"
            ),
        ),
    ]


def _median_ms(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1000
