"""What can happen to a file, and a data directory that has one of every kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.fs.port import FileSystem
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.records.control import ControlType, build_end_marker
from engine.types import AppendOrigin
from tests.support.builders import DATA, EVENTS, World, values_of
from tests.support.time import START_MS

Damage = Callable[[bytes], bytes]

OVERRIDES = {"segment.index.bytes": "2400", "index.interval.bytes": "200", "retention.ms": "-1"}


def cut_in_half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def cut_to_nothing(_: bytes) -> bytes:
    return b""


def cut_by_a_byte(content: bytes) -> bytes:
    return content[:-1]


def zero_filled(content: bytes) -> bytes:
    return bytes(len(content))


def zeros_at_the_end(content: bytes) -> bytes:
    return content[: len(content) // 2] + bytes(len(content) - len(content) // 2)


def grown(content: bytes) -> bytes:
    return content + b"\x00\x01\x02"


def bits_flipped(content: bytes) -> bytes:
    """One bit of every seventeenth byte."""
    return bytes(byte ^ 0x10 if at % 17 == 3 else byte for at, byte in enumerate(content))


def one_bit_flipped(content: bytes) -> bytes:
    """One bit in the middle of the file."""
    middle = len(content) // 2
    flipped = bytes(byte ^ 4 for byte in content[middle : middle + 1])
    return content[:middle] + flipped + content[middle + 1 :]


def reversed_bytes(content: bytes) -> bytes:
    """The right length and other contents."""
    return content[::-1]


DAMAGES: tuple[Damage, ...] = (
    cut_in_half,
    cut_to_nothing,
    cut_by_a_byte,
    zero_filled,
    zeros_at_the_end,
    grown,
    bits_flipped,
    one_bit_flipped,
    reversed_bytes,
)


def rewrite(fs: FileSystem, path: Path, content: bytes) -> None:
    """Put other bytes in the place of a file's content."""
    with fs.open(path) as file:
        file.truncate(0)
        file.append(content)


@dataclass(frozen=True)
class Filled:
    """A data directory that was closed cleanly, and what a reader must find in it."""

    world: World
    values: dict[int, bytes]
    committed: dict[int, bytes]
    """Without those of aborted transactions."""
    times: dict[int, int]
    """Of all offsets, those of markers too."""

    def damage(self, path: Path, damage: Damage) -> None:
        fs = self.world.fs
        rewrite(fs, path, damage(fs.read_bytes(path)))

    def reopen(self) -> LogManager:
        self.world.restart(power_cut=False)
        return self.world.open_manager()


PARTITION = DATA / str(EVENTS)
SEGMENTS = (0, 30, 60)


def fill() -> Filled:
    """Make three segments of thirty offsets, with an idempotent producer and transactions."""
    world = World()
    manager = world.open_manager()
    manager.create_topic(EVENTS.topic, 1, OVERRIDES)
    log = manager.log(EVENTS)
    writer = Writer(log)
    for _ in SEGMENTS:
        if writer.values:
            log.roll()
        for _ in range(4):
            writer.put(5)
        writer.put(4, producer_id=11)
        writer.end(11, ControlType.ABORT)
        writer.put(4, producer_id=12)
        writer.end(12, ControlType.COMMIT)
    world.scheduler.run_due()
    manager.close()
    return Filled(world, writer.values, writer.committed, writer.times)


class Writer:
    """Appends numbered values and remembers where they are."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._sequences = {11: 0, 12: 0}
        self.values: dict[int, bytes] = {}
        self.committed: dict[int, bytes] = {}
        self.times: dict[int, int] = {}

    def put(self, count: int, producer_id: int = -1) -> None:
        end = self._log.watermarks.log_end_offset
        added = {offset: b"value %06d" % offset for offset in range(end, end + count)}
        options: dict[str, object] = {}
        if producer_id >= 0:
            sequence = self._sequences[producer_id]
            self._sequences[producer_id] += count
            options = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "is_transactional": True,
            }
        self._log.append(values_of(added.values(), timestamp=START_MS + end, **options))
        self.values |= added
        self.times |= dict.fromkeys(added, START_MS + end)
        if producer_id != 11:
            self.committed |= added

    def end(self, producer_id: int, how: ControlType) -> None:
        end = self._log.watermarks.log_end_offset
        marker = build_end_marker(
            how,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=START_MS + end,
        )
        self._log.append(marker, origin=AppendOrigin.COORDINATOR)
        self.times[end] = START_MS + end
