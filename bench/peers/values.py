"""Values of 140 bytes, as JSON has them, more of them than a dictionary of Parquet holds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

VALUE_BYTES: Final = 140

_VALUES: Final = 20_000


def some_values(count: int) -> list[bytes]:
    """Return flights; the same ones every time."""
    chance = random.Random(4)
    return [_value(chance) for _ in range(count)]


def write_values(folder: Path) -> Path:
    """Write a line for each value, as Kafka's producer tool reads them."""
    target = folder / "values.txt"
    target.write_bytes(b"\n".join(some_values(_VALUES)))
    return target


def _value(chance: random.Random) -> bytes:
    flight = (
        b'{"year":2013,"month":%d,"carrier":"%s","flight":%d,"tailnum":"N%05d","origin":"JFK"'
        % (
            chance.randrange(1, 13),
            chance.choice((b"UA", b"AA", b"B6", b"DL")),
            chance.randrange(10_000),
            chance.randrange(100_000),
        )
    )
    delays = b',"dest":"%s","arr_delay":%d,"distance":%d}' % (
        chance.choice((b"IAH", b"MIA", b"BQN", b"SFO")),
        chance.randrange(-30, 300),
        chance.randrange(100, 5_000),
    )
    return (flight + delays).ljust(VALUE_BYTES)
