"""What happens to bytes on a disk, at random: each way takes a file and gives back another."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from engine.records.header import HEADER_BYTES
from engine.records.scan import iter_headers

Way = Callable[[Random, bytes, list[bytes]], bytes]
"""Takes the content, and those of all files, whose blocks may come to lie in the wrong place."""

WAYS: dict[str, Way] = {}
SECTORS = (64, 512, 4_096)


def way(damage: Way) -> Way:
    WAYS[damage.__name__] = damage
    return damage


def a_place(random: Random, content: bytes) -> int:
    return random.randrange(len(content)) if content else 0


def a_range(random: Random, content: bytes) -> slice:
    """A whole sector of some size, or the end of one."""
    size = random.choice(SECTORS)
    start = a_place(random, content) // size * size
    return slice(start, start + size)


def replaced(content: bytes, where: slice, by: bytes) -> bytes:
    """Put other bytes into a place of the same size."""
    length = len(content[where])
    return content[: where.start] + by[:length].ljust(length, b"\0") + content[where.stop :]


@way
def a_bit(random: Random, content: bytes, others: list[bytes]) -> bytes:
    changed = bytearray(content)
    if changed:
        changed[a_place(random, content)] ^= 1 << random.randrange(8)
    return bytes(changed)


@way
def some_bits(random: Random, content: bytes, others: list[bytes]) -> bytes:
    for _ in range(random.randint(2, 20)):
        content = a_bit(random, content, others)
    return content


@way
def a_field_of_a_header(random: Random, content: bytes, others: list[bytes]) -> bytes:
    """A byte of the header of some batch, if there is one; the framing is the weakest place."""
    places = [position for position, _ in iter_headers(content)] if _is_log(content) else []
    at = (random.choice(places) if places else 0) + random.randrange(HEADER_BYTES)
    return replaced(content, slice(at, at + 1), bytes([random.randrange(256)]))


@way
def an_extreme_number(random: Random, content: bytes, others: list[bytes]) -> bytes:
    width = random.choice((2, 4, 8))
    at = a_place(random, content) // 2 * 2
    highest = (1 << 8 * width - 1) - 1
    number = random.choice((0, 1, -1, highest, -highest - 1))
    return replaced(content, slice(at, at + width), number.to_bytes(width, "big", signed=True))


@way
def a_sector_of_zeros(random: Random, content: bytes, others: list[bytes]) -> bytes:
    return replaced(content, a_range(random, content), b"")


@way
def a_sector_of_noise(random: Random, content: bytes, others: list[bytes]) -> bytes:
    where = a_range(random, content)
    return replaced(content, where, random.randbytes(where.stop - where.start))


@way
def two_sectors_swapped(random: Random, content: bytes, others: list[bytes]) -> bytes:
    size = random.choice(SECTORS)
    one, two = (a_place(random, content) // size * size for _ in range(2))
    first, second = content[one : one + size], content[two : two + size]
    changed = replaced(content, slice(one, one + size), second)
    return replaced(changed, slice(two, two + size), first)


@way
def a_sector_of_another_file(random: Random, content: bytes, others: list[bytes]) -> bytes:
    other = random.choice(others)
    return replaced(content, a_range(random, content), other[a_range(random, other)])


@way
def another_file(random: Random, content: bytes, others: list[bytes]) -> bytes:
    return random.choice(others)


@way
def cut(random: Random, content: bytes, others: list[bytes]) -> bytes:
    return content[: a_place(random, content)]


@way
def cut_between_entries(random: Random, content: bytes, others: list[bytes]) -> bytes:
    """At the end of a batch, or of an entry or line: what is left looks whole."""
    if _is_log(content):
        ends = [position for position, _ in iter_headers(content)]
    else:
        lines = [found.end() for found in re.finditer(rb"\n", content)]
        ends = [*lines, *range(0, len(content), 8), *range(0, len(content), 34)]
    return content[: random.choice(ends or [0])]


@way
def longer_by_zeros(random: Random, content: bytes, others: list[bytes]) -> bytes:
    return content + bytes(random.randint(1, 5_000))


@way
def longer_by_noise(random: Random, content: bytes, others: list[bytes]) -> bytes:
    return content + random.randbytes(random.randint(1, 500))


@way
def longer_by_itself(random: Random, content: bytes, others: list[bytes]) -> bytes:
    """What it begins or ends with, once more: a write that was repeated."""
    at = a_place(random, content)
    return content + random.choice((content[at:], content[:at]))


@way
def a_byte_lost(random: Random, content: bytes, others: list[bytes]) -> bytes:
    at = a_place(random, content)
    return content[:at] + content[at + random.randint(1, 8) :]


@way
def a_byte_too_many(random: Random, content: bytes, others: list[bytes]) -> bytes:
    at = a_place(random, content)
    return content[:at] + random.randbytes(random.randint(1, 8)) + content[at:]


def _is_log(content: bytes) -> bool:
    """Whether it begins with a batch that can be framed; an index may happen to do so too."""
    return len(content) > HEADER_BYTES and content[16] == 2 and content[8:11] == b"\0\0\0"
