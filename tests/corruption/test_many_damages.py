"""Random damage to whole data directories, our own and a broker's, from seeds.

A failure prints its seed; `make damage SEED=… RUNS=1` replays it.
"""

import pytest

from tests.corruption.cases import Tally, play

SOME = range(20)
MANY = range(1_000, 4_000)


def play_all(seeds: range) -> Tally:
    tally = Tally()
    for seed in seeds:
        failure = play(seed, tally)
        assert failure is None, failure
    return tally


def test_damage_makes_nothing_wrong() -> None:
    """Each case ends in right records, or in an error that names the file."""
    tally = play_all(SOME)
    assert sum(tally.ends.values()) + tally.again == len(SOME)


@pytest.mark.long
def test_much_damage_makes_nothing_wrong() -> None:
    """The same for thousands of them; every kind of file has its share."""
    tally = play_all(MANY)
    kinds = {kind for kind, _ in tally.ends}
    assert {".log", ".index", ".timeindex", ".txnindex", ".snapshot"} <= kinds
    assert len({end for _, end in tally.ends}) == 3
