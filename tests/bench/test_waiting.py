"""The crowd of waiting readers, small: what it measures adds up."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from bench.crowd import Crowd, CrowdResult, figures_of, run_crowd
from tests.support.server import serving


def test_every_reader_of_a_crowd_is_timed(tmp_path: Path) -> None:
    """For each commit but the first there is a time for every reader, and one for the append."""
    with serving(tmp_path) as served:
        httpx.put(f"{served.url}/v1/topics/waiting", json={}).raise_for_status()
        address = urlsplit(served.url)
        crowd = Crowd(
            host=address.hostname or "",
            port=address.port or 0,
            pid=os.getpid(),
            path="/v1/topics/waiting/partitions/0",
            polls=3,
            tails=2,
            commits=2,
        )
        result = run_crowd(crowd)
    assert [len(times) for times in result.polls_s] == [3, 3]
    assert [len(times) for times in result.tails_s] == [2, 2]
    assert len(result.acknowledged_s) == 2
    assert all(0 < seconds < 60 for times in result.polls_s for seconds in times)


def test_the_last_reader_counts() -> None:
    """Of each commit the last reader, then the median of the commits; memory for each reader."""
    result = CrowdResult(
        grown_bytes=4 << 20,
        acknowledged_s=[0.001, 0.002, 0.003],
        polls_s=[[0.030, 0.040], [0.010, 0.020], [0.5, 0.5]],
        tails_s=[[0.010, 0.020], [0.010, 0.020], [0.5, 0.5]],
    )
    memory, latency = figures_of(result)
    assert (memory.value, memory.name) == (4.0, "4 idle readers: long polls and tails")
    assert "1024.0 KiB each" in memory.note
    assert (latency.name, latency.value) == ("a commit is with all readers", 40.0)
    assert "with the median reader after 25.0 ms" in latency.note
    assert "with all tails after 20.0 ms, with all polls after 40.0 ms" in latency.note
