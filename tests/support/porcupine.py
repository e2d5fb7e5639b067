"""Porcupine, a checker of linearizability in Go that knows nothing of logs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from math import inf
from pathlib import Path

from tests.support.cycles import Client, Sent
from tests.support.histories import Appended, Observed

SOURCES = Path(__file__).parents[1] / "crash" / "porcupine"
NEVER = (1 << 63) - 1
FNV_BASIS, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


@dataclass(frozen=True)
class Call:
    """A call as its client saw it; None is an unknown result. See `main.go`."""

    client: int
    begin: int
    end: int
    value: str | None = None
    expected: int | None = None
    offset: int | None = None
    length: int | None = None
    seen: int | None = None

    @classmethod
    def append(cls, client: int, sent: Sent) -> Call:
        times = nanoseconds(sent.begin), nanoseconds(sent.end)
        return cls(client, *times, sent.value, sent.expected, sent.offset)

    @classmethod
    def look(cls, client: int, observed: Observed, transcript: Sequence[str] = ()) -> Call:
        """What a reader with this transcript got; the length that it read is known too."""
        times = nanoseconds(observed.begin), nanoseconds(observed.end)
        is_read = 0 < observed.length <= len(transcript)
        seen = digest(transcript[: observed.length]) if is_read else None
        return cls(client, *times, length=observed.length, seen=seen)


def nanoseconds(seconds: float) -> int:
    return NEVER if seconds == inf else int(seconds * 1e9)


def digest(values: Sequence[str]) -> int:
    """What `main.go` makes of these values, one after another."""
    return reduce(_with, values, 0)


def _with(before: int, value: str) -> int:
    content = before.to_bytes(8, "little") + value.encode()
    return reduce(lambda found, byte: (found ^ byte) * FNV_PRIME % (1 << 64), content, FNV_BASIS)


def bare(appends: Sequence[Appended], observations: Sequence[Observed]) -> list[Call]:
    """The same history as `contradiction` gets it."""
    sent = [Sent(str(n), one.begin, one.end, one.offset) for n, one in enumerate(appends)]
    return [
        *(Call.append(number, one) for number, one in enumerate(sent)),
        *(Call.look(len(sent) + number, one) for number, one in enumerate(observations)),
    ]


def told_to(clients: Sequence[Client]) -> list[Call]:
    """The lengths that these clients got; their numbers are their indexes."""
    return [
        Call.look(number, one) for number, client in enumerate(clients) for one in client.observed
    ]


def built(folder: Path) -> Path:
    """Compile it; Go fetches what `go.sum` says, once for a machine."""
    judge = folder / "judge"
    command = ["go", "build", "-buildvcs=false", "-o", str(judge), "."]
    subprocess.run(command, cwd=SOURCES, check=True, capture_output=True)
    return judge


def verdicts(judge: Path, histories: Sequence[Sequence[Call]]) -> list[str]:
    """`Ok` for each history that one log explains, `Illegal` for the others."""
    asked = json.dumps([[asdict(call) for call in history] for history in histories])
    answered = subprocess.run([judge], input=asked, check=True, capture_output=True, text=True)
    found: list[str] = json.loads(answered.stdout)
    return found
