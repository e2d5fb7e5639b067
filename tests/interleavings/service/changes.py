"""What may happen to a log between any two lines of a request: each a part of a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from engine.log.log import Log
from tests.interleavings.service.truth import Truth
from tests.support.service import local

Part = Callable[[Truth, Random], None]

PARTS: Final[dict[str, Part]] = {}
OVERRIDES: Final = {
    "segment.bytes": "400",
    "index.interval.bytes": "0",
    "retention.ms": "-1",
    "min.cleanable.dirty.ratio": "0",
    "file.delete.delay.ms": "0",
}


def part(act: Callable[[Truth, Log, Random], None]) -> Part:
    """Have it happen while the topic is there, and the truth look before and after it."""

    def happen(truth: Truth, random: Random) -> None:
        truth.look()
        log = truth.log
        if log is not None:
            act(truth, log, random)
        truth.look()

    PARTS[act.__name__] = happen
    return happen


@part
def append(truth: Truth, log: Log, random: Random) -> None:
    truth.append(random.randint(1, 3))


@part
def roll(truth: Truth, log: Log, random: Random) -> None:
    log.roll()


@part
def truncate(truth: Truth, log: Log, random: Random) -> None:
    """Cut the end off, and perhaps write other records there at once."""
    marks = log.watermarks
    least = max(marks.log_start_offset, marks.log_end_offset - 5)
    known = truth.logs[log.reader.log_id]
    local(truth.service).manager.truncate(log, random.randint(least, marks.log_end_offset))
    start = log.watermarks.log_start_offset  # below it, files still have what no look finds
    below = {at: one for at, one in known.items() if at < start}
    truth.logs.setdefault(log.reader.log_id, below)  # a cut at the end leaves the log as it was
    truth.tell(log, log.watermarks.high_watermark)
    truth.look()
    if random.random() < 0.7:
        truth.append(random.randint(1, 5))


@part
def replace(truth: Truth, log: Log, random: Random) -> None:
    """Delete the topic and make another one of that name."""
    service, topic = truth.service, truth.topic
    local(service).manager.delete_topic(topic)
    loop = local(service).commits._loop  # noqa: SLF001 - the one of the service
    assert isinstance(loop, asyncio.AbstractEventLoop)
    loop.call_soon_threadsafe(service.forget, topic)
    local(service).manager.create_topic(topic, 1, OVERRIDES)
    truth.look()
    truth.append(random.randint(1, 9))


@part
def delete_records(truth: Truth, log: Log, random: Random) -> None:
    marks = log.watermarks
    before = random.randint(marks.log_start_offset, marks.high_watermark)
    local(truth.service).manager.delete_records(log, before)


@part
def retention(truth: Truth, log: Log, random: Random) -> None:
    local(truth.service).manager.update_topic(truth.topic, {"retention.bytes": "300"})
    log.maintenance.run_retention()
    local(truth.service).manager.update_topic(truth.topic, {"retention.bytes": "-1"})


@part
def compact(truth: Truth, log: Log, random: Random) -> None:
    """Set the policy, compact, and perhaps set it back: the bytes of a page change in between."""
    manager = local(truth.service).manager
    manager.update_topic(truth.topic, {"cleanup.policy": "compact"})
    truth.cleaned.add(log.reader.log_id)
    log.roll()
    local(truth.service).runtime.cleaner.clean_now(log)
    if random.random() < 0.7:
        manager.update_topic(truth.topic, {"cleanup.policy": "delete"})


@part
def configure(truth: Truth, log: Log, random: Random) -> None:
    """Change what readers do not see, or how much they may be given."""
    changes = {"segment.bytes": random.choice(("300", "900")), "max.message.bytes": "100000"}
    local(truth.service).manager.update_topic(truth.topic, changes)


@part
def flush(truth: Truth, log: Log, random: Random) -> None:
    log.durability.flush()
