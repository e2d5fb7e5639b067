"""Results as JSON: with the machine they belong to, and beside those that were committed last."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from bench.figures import Figure

COMMITTED: Final = Path(__file__).parent / "committed"
"""What the page shows, and new results are compared with."""

_NOISE: Final = 1.25
"""A figure that is less than this much better or worse has not moved: machines have moods."""


class Machine(msgspec.Struct, frozen=True):
    """Where and when something was measured; `load` is how many wanted a processor."""

    system: str
    python: str
    cores: int
    date: str = ""
    load: float = 0.0


def this_machine() -> Machine:
    """Return where this process runs, and how busy that is."""
    return Machine(
        platform.platform(),
        platform.python_version(),
        os.cpu_count() or 1,
        dt.datetime.now(dt.UTC).date().isoformat(),
        round(os.getloadavg()[0], 1),
    )


def write_document(fields: Mapping[str, object], target: Path) -> None:
    """Write results and the machine they belong to."""
    document = {"machine": this_machine(), **fields}
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")


def moves(before: Sequence[Figure], after: Sequence[Figure]) -> list[str]:
    """Return a line for each figure that has moved, as a share of its yardstick if it has one.

    What another machine, or a busy one, changes for figure and yardstick alike is no move.
    """
    known = {figure.name: figure for figure in before}
    lines = []
    for figure in after:
        earlier = known.get(figure.name)
        if earlier is None:
            lines.append(f"{figure.name}: new")
            continue
        ratio = figure.share / earlier.share if earlier.share else 1.0
        if 1 / _NOISE <= ratio <= _NOISE:
            continue
        is_better = (ratio < 1) is figure.is_ceiling
        lines.append(
            f"{figure.name}: {'better' if is_better else 'worse'}, {ratio:.2f} of what it was"
        )
    return lines
