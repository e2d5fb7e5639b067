"""Histories of calls over HTTP, crashes included, checked by an independent checker: Porcupine.

It searches for an order of all calls; ours uses the offsets as that order. Both must agree.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from random import Random

import pytest

from tests.crash.test_kill_cycles import CONTENDED, SHARED, Lives
from tests.support.histories import Appended, Observed, contradiction
from tests.support.porcupine import Call, bare, built, told_to, verdicts

pytestmark = [pytest.mark.long, pytest.mark.needs("go")]

HISTORIES = 4_000
CYCLES = 8


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled checker."""
    return built(tmp_path_factory.mktemp("porcupine"))


def some_history(random: Random) -> tuple[list[Appended], list[Observed]]:
    """A few overlapping calls with results that one log may have returned, or almost."""
    instants = list(accumulate(random.uniform(0.1, 1) for _ in range(random.randint(2, 9))))
    appends: list[Appended] = []
    observations: list[Observed] = []
    for instant in instants:
        begin, end = (instant + sign * random.expovariate(1.5) for sign in (-1, 1))
        if random.random() < 0.5:
            end = float("inf") if random.random() < 0.1 else end
            appends.append(Appended(len(appends), begin, end))
        else:
            is_wrong = random.random() < 0.2
            length = len(appends) + (random.choice((-1, 1)) if is_wrong else 0)
            observations.append(Observed(length, begin, end))
    if appends and random.random() < 0.2:
        number = random.randrange(len(appends))
        appends[number] = replace(appends[number], offset=random.randrange(len(appends)))
    return appends, observations


def test_both_checkers_agree(judge: Path) -> None:
    """On thousands of small histories, of which about half are possible."""
    random = Random(20261122)
    histories = [some_history(random) for _ in range(HISTORIES)]
    ours = ["Illegal" if contradiction(*history) else "Ok" for history in histories]
    assert ours == verdicts(judge, [bare(*history) for history in histories])
    assert HISTORIES / 4 < ours.count("Ok") < HISTORIES * 3 / 4


@pytest.mark.parametrize("seed", [20261201, 20261202])
def test_one_log_explains_the_responses_of_a_killed_service(
    judge: Path, tmp_path: Path, seed: int
) -> None:
    """All appends with all readers at once, and with all that were refused for a wrong log end.

    The log end and the high watermark are two lengths, of which the second is lower.
    """
    lives = Lives(tmp_path, seed, CYCLES)
    for partition in (SHARED, CONTENDED):
        writers, readers = lives.writers(partition), lives.readers_of(partition)
        sent = [Call.append(n, one) for n, writer in enumerate(writers) for one in writer.sent]
        refused = told_to(writers)
        seen = [
            Call.look(len(writers) + number, one, reader.transcript)
            for number, reader in enumerate(readers)
            for one in reader.observed
        ]
        histories = [[*sent, *refused], [*sent, *seen]]
        assert verdicts(judge, histories) == ["Ok", "Ok"]
        last = max(seen, key=lambda one: one.length or 0)
        stale = replace(last, begin=last.end + 1, end=last.end + 2, length=0, seen=None)
        other = replace(last, seen=(last.seen or 0) ^ 1)
        untrue = [[*sent, *seen, stale], [*sent, *seen, other]]
        assert verdicts(judge, untrue) == ["Illegal", "Illegal"]
