"""Histories of concurrent calls on one log, and whether one log could have answered them.

For a log the general question of linearizability has a simple answer: the offsets give the order in
which the appends took effect. It remains to find an instant for each call between its beginning and
its end, in that order, such that each reported length of the log was its length at that instant.
Always taking the earliest possible instant finds a solution if there is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Appended:
    """An append of one record that took effect; `end` is infinite where no answer came."""

    offset: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Observed:
    """A call that returned the length of the log."""

    length: int
    begin: float
    end: float


def contradiction(appends: Iterable[Appended], observations: Iterable[Observed]) -> str | None:
    """Return why no log can have answered so, or None if one can.

    The appends are all there ever were, at offsets 0, 1, 2…
    """
    seen: dict[int, list[Observed]] = defaultdict(list)
    for observation in observations:
        seen[observation.length].append(observation)
    ordered = sorted(appends, key=lambda append: append.offset)
    if [append.offset for append in ordered] != list(range(len(ordered))):
        return "the offsets are not those of one log"
    beyond = [length for length in seen if not 0 <= length <= len(ordered)]
    if beyond:
        return f"somebody was told of length {beyond[0]}, which the log never had"
    instant = -inf  # when the log got its present length, at the earliest
    for length in range(len(ordered) + 1):
        for observation in seen[length]:
            if observation.end < instant:
                return f"{observation} was told of {length} before it could be reached"
        instant = max([instant, *(observation.begin for observation in seen[length])])
        if length == len(ordered):
            return None
        append = ordered[length]
        instant = max(instant, append.begin)
        if append.end < instant:
            return f"{append} ended before it could take effect"
    raise AssertionError("the last length returns")
