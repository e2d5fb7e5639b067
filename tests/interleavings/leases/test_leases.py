"""Leases in plays from seeds: never two holders, soon all held, the same for every replica.

A failure prints its seed, which plays it again: `make interleavings OF=leases SEED=… RUNS=1`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app.operations.leases.group import GroupLeases, KnownTopic, Renewal
from tests.interleavings.faults import Edit, Fault, put_back
from tests.interleavings.leases.plays import play
from tests.support.campaign import ensure_clean, played, seed_of_today

PROGRAM = "tests.interleavings.leases"
GROUP = "app/operations/leases/group.py"
FIXED = 400
FRESH_FROM = 1_000_000
FRESH_PER_DAY = 400
LONG_FROM = 100_000_000
LONG_RUNS = 100_000

FAULTS = (
    Fault(
        "a partition is given away while its worker finishes with it",
        (
            Edit(
                GROUP,
                "self.holds[place].until_ms = worker.deadline_ms\n",
                "self._release(worker, place)\n",
            ),
        ),
        (),
        1,
    ),
    Fault(
        "a partition that is to move stays as long as its worker renews",
        (
            Edit(
                GROUP, "            heapq.heappush(self._ending, (worker.deadline_ms, place))\n", ""
            ),
        ),
        (),
        1,
    ),
    Fault(
        "what a start reads lacks when holds end",
        (
            Edit(
                GROUP,
                "                        group._ending.append((until_ms, place))\n",
                "                        pass\n",
            ),
        ),
        (),
        1,
    ),
    Fault(
        "time goes back with the clock of another broker",
        (Edit(GROUP, "self.time_ms = max(self.time_ms, time_ms)", "self.time_ms = time_ms"),),
        (),
        1,
    ),
    Fault(
        "claims that the last state has are applied again",
        (Edit("app/operations/leases/leases.py", "one.offset < state.before_offset", "False"),),
        (),
        1,
    ),
)


def test_no_partition_has_two_workers() -> None:
    """Workers that crash, sleep, leave and return, replicas that restart, topics that change."""
    assert [failed for seed in range(1, FIXED) if (failed := play(seed))] == []


def test_no_partition_has_two_workers_today() -> None:
    """The same, with new plays each day."""
    ensure_clean(PROGRAM, seed_of_today(FRESH_FROM, FRESH_PER_DAY), FRESH_PER_DAY)


@pytest.mark.long
def test_no_partition_has_two_workers_for_long() -> None:
    """The same, in a hundred thousand plays."""
    ensure_clean(PROGRAM, LONG_FROM, LONG_RUNS)


@pytest.mark.parametrize(
    "fault",
    [FAULTS[0], *(pytest.param(fault, marks=pytest.mark.long) for fault in FAULTS[1:])],
    ids=lambda fault: fault.name,
)
def test_a_fault_of_the_leases_is_found(fault: Fault, tmp_path: Path) -> None:
    """The plays find what would break a promise of the leases."""
    put_back(fault, tmp_path)
    told = played(PROGRAM, "--seed", str(fault.seed), "--runs", "3000", folder=tmp_path)
    assert "1 failed" in told, told


def settled(*workers: str, partitions: int) -> tuple[GroupLeases, int]:
    """A group whose workers have what they are to have, and the next offset."""
    leases, offset = GroupLeases(), 0
    renewal = Renewal({"t": KnownTopic("id", partitions)}, 10_000)
    for _ in range(3):
        for name in workers:
            known = leases.workers.get(name)
            released = sorted(known.held - known.targets) if known else []
            leases.apply(name, renewal._replace(released=released), offset=offset, time_ms=0)
            offset += 1
    return leases, offset


@pytest.mark.parametrize(("workers", "partitions"), [(1, 7), (4, 10), (9, 100), (12, 5)])
def test_a_worker_that_joins_moves_its_share_and_nothing_else(
    workers: int, partitions: int
) -> None:
    """What it does not get stays where it was."""
    leases, offset = settled(*(f"w{n}" for n in range(workers)), partitions=partitions)
    before = {name: set(one.targets) for name, one in leases.workers.items()}
    renewal = Renewal({"t": KnownTopic("id", partitions)}, 10_000)
    leases.apply("new", renewal, offset=offset, time_ms=0)
    moved = set().union(*(before[name] - leases.workers[name].targets for name in before))
    assert moved == leases.workers["new"].targets
    assert len(moved) == partitions // (workers + 1)


@pytest.mark.parametrize(("workers", "partitions"), [(2, 7), (4, 10), (9, 100), (12, 5)])
def test_a_worker_that_leaves_moves_what_it_had_and_nothing_else(
    workers: int, partitions: int
) -> None:
    """The others keep what they have, and get the rest in equal parts."""
    leases, offset = settled(*(f"w{n}" for n in range(workers)), partitions=partitions)
    before = {name: set(one.targets) for name, one in leases.workers.items()}
    leases.apply("w1", None, offset=offset, time_ms=0)
    assert all(before[name] <= one.targets for name, one in leases.workers.items())
    loads = [len(one.targets) for one in leases.workers.values()]
    assert sum(loads) == partitions
    assert max(loads) - min(loads) <= 1
