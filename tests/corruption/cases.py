"""Cases from seeds: which directory, which file, what happens to it, and what becomes of it."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from random import Random

from tests.corruption.images import (
    NOT_THE_ENGINES,
    golden_image,
    image,
    judge,
)
from tests.corruption.ways import WAYS
from tests.simulation.determinism import deterministic
from tests.support.patience import at_most

LONGEST_S = 30
OWN_FOR_EACH_GOLDEN = 8
"""Those of a broker are larger, and a case takes several times as long."""

GOLDEN = (
    ("clean", ("codec-gzip-0", "epochs-0", "txn-0")),
    ("killed", ("codec-lz4-0", "txn-0")),
    ("compacted", ("compact-txn-0",)),
)


@dataclass
class Tally:
    """How many cases there were of each kind of file, and how they ended."""

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: int = 0
    again: int = 0
    """How many were left out, since the same bytes came into the same place before."""
    seen: set[bytes] = field(default_factory=set)
    """What came where, shortened."""

    def __str__(self) -> str:
        kinds = sorted({kind for kind, _ in self.ends})
        lines = []
        for kind in kinds:
            ends = {end: count for (one, end), count in self.ends.items() if one == kind}
            told = ", ".join(f"{count:,} {end}" for end, count in sorted(ends.items()))
            lines.append(f"{kind:36} {sum(ends.values()):>8,}: {told}")
        return "\n".join(lines)


IMAGES = (
    *(partial(image, was_clean=was_clean) for was_clean in (True, False) * OWN_FOR_EACH_GOLDEN),
    *(partial(golden_image, archive, names) for archive, names in GOLDEN),
)
"""Directories as they were left by a stop and by a crash, of our own making and a broker's."""


def kind_of(path: Path) -> str:
    """What sort of file it is: each gets its share, however many there are of the others."""
    if path.name in NOT_THE_ENGINES:
        return "somebody else's"
    return path.suffix if path.name[:20].isdecimal() else path.name


def play(seed: int, tally: Tally) -> str | None:
    """Damage a file and judge what becomes of it; return what went wrong, if anything."""
    random = Random(f"damage {seed}")
    before = random.choice(IMAGES)()
    kind = random.choice(sorted({kind_of(path) for path in before.files}))
    path = random.choice([path for path in before.files if kind_of(path) == kind])
    content = before.files[path]
    while content == before.files[path]:
        name = random.choice(sorted(WAYS))
        content = WAYS[name](random, before.files[path], [*before.files.values()])
    case = blake2b(f"{id(before)} {path} ".encode() + content, digest_size=16).digest()
    if case in tally.seen:
        tally.again += 1
        return None
    tally.seen.add(case)
    try:
        with at_most(LONGEST_S), deterministic(seed):
            end = judge(before, path, content).value
    except Exception:  # noqa: BLE001 - whatever it is, it is what was looked for
        tally.failed += 1
        trace = traceback.format_exc(limit=-6)
        return f"seed {seed}: {name} in {path}\n{trace}\nagain: make damage SEED={seed} RUNS=1"
    tally.ends[kind, end] += 1
    return None
