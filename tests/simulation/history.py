"""The history that a seed produces, and the reduction of a failing one to few steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

STEPS_PER_RUN = 24


class Step(NamedTuple):
    """One step; its seed decides the details, independent of earlier steps."""

    number: int
    name: str
    seed: int


def history_of(seed: int, weights: dict[str, int], count: int = STEPS_PER_RUN) -> list[Step]:
    """Return the steps of a run."""
    random = Random(f"history {seed}")
    names = random.choices(list(weights), list(weights.values()), k=count)
    return [Step(number, name, random.getrandbits(32)) for number, name in enumerate(names)]


def shortened(steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Leave out all steps that a failure does not need; Zeller's delta debugging."""
    kept = list(steps)
    size = max(1, len(kept) // 2)
    while True:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            if fewer != kept and fails(fewer):
                kept = fewer
            else:
                start += size
        if size == 1:
            return kept
        size //= 2
