"""What threads of a schedule do: each with its name, and how its result is judged afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from engine.log.read.segment_files import FileKind
from engine.log.results import Appended
from engine.records.batch import BatchView
from engine.records.control import ControlType, build_end_marker
from engine.types import AppendOrigin, FetchIsolation
from tests.interleavings import judging
from tests.interleavings.archiving import Archiving
from tests.interleavings.history import History
from tests.interleavings.outcome import Outcome
from tests.support.driven_log import IDEMPOTENT, TRANSACTIONAL
from tests.support.logs import ALL_BYTES, batches_in

Act: TypeAlias = Callable[[], object]
Judge: TypeAlias = Callable[[History, Outcome], None]


@dataclass
class Work:
    """One call into the engine."""

    name: str
    act: Act
    judge: Judge = judging.succeeded
    outcome: Outcome = field(default_factory=Outcome)


Plan: TypeAlias = Callable[[History, Random], Work | None]

PLANS: dict[str, Plan] = {}
WEIGHTS: dict[str, int] = {}


def planned(weight: int) -> Callable[[Plan], Plan]:
    """Have the work be drawn that often."""

    def add(plan: Plan) -> Plan:
        name = plan.__name__.replace("_", " ")
        PLANS[name], WEIGHTS[name] = plan, weight
        return plan

    return add


# -- writers -------------------------------------------------------------------------------------


def _appending(
    history: History,
    name: str,
    data: bytearray,
    *,
    is_abort: bool | None = None,
    append: Callable[..., Appended] | None = None,
) -> Work:
    append = append or history.scene.log.append
    origin = AppendOrigin.CLIENT if is_abort is None else AppendOrigin.COORDINATOR

    def act() -> Appended:
        history.appends_under_way += 1
        try:
            return append(data, origin=origin)
        finally:
            history.appends_under_way -= 1
            if BatchView(data).header.leader_epoch >= 0:  # otherwise it was refused at once
                history.appended += [(bytes(one.buffer), is_abort) for one in batches_in(data)]

    return Work(name, act)


@planned(14)
def append(history: History, random: Random) -> Work:
    count = random.randint(1, 4)
    return _appending(history, f"append of {count}", history.scene.driven.build(count))


@planned(3)
def append_several(history: History, random: Random) -> Work:
    counts = [random.randint(1, 3) for _ in range(random.randint(2, 3))]
    data = b"".join(history.scene.driven.build(count) for count in counts)
    return _appending(history, f"append of {counts}", bytearray(data))


@planned(2)
def produce(history: History, random: Random) -> Work | None:
    """At most once for each producer: a second one would need the sequence after the first."""
    producer_id = random.choice((*IDEMPOTENT, *TRANSACTIONAL))
    driven = history.scene.driven
    if producer_id in history.producers or driven.model.may_be_refused(producer_id):
        return None
    history.producers.add(producer_id)
    count = random.randint(1, 3)
    work = _appending(
        history, f"append of {count} by {producer_id}", driven.produce(producer_id, count)
    )
    work.judge = judging.accepted_unless_cut
    return work


@planned(3)
def end_transaction(history: History, random: Random) -> Work | None:
    driven = history.scene.driven
    open_ones = [one for one in TRANSACTIONAL if driven.model.is_in_transaction(one)]
    producer_id = random.choice(open_ones) if open_ones else -1
    if not open_ones or producer_id in history.producers:
        return None
    history.producers.add(producer_id)
    commits = random.random() < 0.4
    data = build_end_marker(
        ControlType.COMMIT if commits else ControlType.ABORT,
        producer_id=producer_id,
        producer_epoch=driven.model.next_sequence(producer_id)[0],
        coordinator_epoch=0,
        timestamp=driven.clock.now_ms(),
    )
    name = f"{'commit' if commits else 'abort'} of {producer_id}"
    work = _appending(history, name, data, is_abort=not commits)
    work.judge = judging.accepted_unless_cut
    return work


@planned(6)
def commit(history: History, random: Random) -> Work:
    return Work("commit", history.scene.log.durability.commit, judging.committed)


@planned(4)
def flush(history: History, random: Random) -> Work:
    return Work("flush", history.scene.log.durability.flush)


@planned(5)
def roll(history: History, random: Random) -> Work:
    return Work("roll", history.scene.log.roll)


@planned(4)
def truncate(history: History, random: Random) -> Work | None:
    """At most once, because the epoch separates before and after."""
    model = history.scene.driven.model
    if history.cut_at is not None or model.end == 0:
        return None
    history.cut_at = offset = random.randint(max(0, model.end - 14), model.end)
    history.changes_start = True
    scene = history.scene

    def act() -> int:
        history.is_cutting = True
        try:
            return scene.manager.truncate(scene.log, offset)
        finally:
            history.is_cutting = False

    return Work(f"truncate to {offset}", act)


@planned(4)
def retention(history: History, random: Random) -> Work:
    history.changes_start = True
    return Work("retention", history.scene.log.maintenance.run_retention)


@planned(3)
def delete_records(history: History, random: Random) -> Work:
    scene, model = history.scene, history.scene.driven.model
    offset = random.randint(model.log_start, max(model.log_start, model.high_watermark))
    history.changes_start = True

    def act() -> int:
        start = scene.manager.delete_records(scene.log, offset)
        history.deleted_below = max(history.deleted_below, offset)
        return start

    return Work(f"delete below {offset}", act, judging.possible_unless_cut)


@planned(5)
def compact(history: History, random: Random) -> Work | None:
    scene = history.scene
    if not scene.is_compacted:
        return None
    if random.random() < 0.5:
        return Work("clean", lambda: scene.machine.cleaner.clean_now(scene.log))
    return Work("pass of the cleaner", scene.machine.cleaner.run_pass)


@planned(3)
def move(history: History, random: Random) -> Work:
    scene = history.scene
    target = next(one for one in scene.machine.directories if one != scene.log.directory.parent)
    history.moved = True
    return Work(
        f"move to {target}",
        lambda: scene.manager.move_partition(scene.log.topic_partition, target),
        judging.moved_unless_cut,
    )


@planned(2)
def checkpoint(history: History, random: Random) -> Work:
    return Work("checkpoint", history.scene.manager.checkpoint)


@planned(2)
def change_config(history: History, random: Random) -> Work:
    scene = history.scene
    changes = {
        "segment.bytes": random.choice(("700", "1500")),
        "segment.index.bytes": random.choice(("24", "120")),
    }
    truth = scene.machine.topics[scene.log.topic_partition.topic]
    truth.configs.append({**truth.configs[-1], **changes})
    return Work(
        f"change to {changes}",
        lambda: scene.manager.update_topic(scene.log.topic_partition.topic, changes),
    )


@planned(3)
def append_with_acks(history: History, random: Random) -> Work:
    """Through the committer, for a client that waits for the disk."""
    scene = history.scene
    committer, log = scene.machine.runtime.committer, scene.log
    count = random.randint(1, 3)

    def append(data: bytearray, origin: AppendOrigin) -> Appended:
        appended = committer.append(log, data, acks_all=True, origin=origin)
        history.awaited = max(history.awaited, appended.last_offset + 1)
        return appended

    data = scene.driven.build(count)
    return _appending(history, f"append of {count} with acks", data, append=append)


@planned(3)
def commit_round(history: History, random: Random) -> Work | None:
    """The committer has one thread."""
    if not history.is_first("round"):
        return None
    return Work("round of the committer", history.scene.machine.runtime.committer.run_round)


@planned(1)
def close(history: History, random: Random) -> Work | None:
    """The service stops: later works get that error.

    Not during a stop's wait, nor a check of the log, which needs its files.
    """
    if not all(map(history.is_first, ("close", "background", "look into"))):
        return None
    history.is_closing = True
    return Work("close", history.scene.machine.runtime.close)


@planned(2)
def background(history: History, random: Random) -> Work | None:
    """Run the due tasks of the scheduler's thread."""
    if not history.is_first("background"):
        return None
    return Work("background tasks", history.scene.machine.scheduler.run_due)


# -- readers -------------------------------------------------------------------------------------


@planned(10)
def read(history: History, random: Random) -> Work:
    log, model = history.scene.log, history.scene.driven.model
    offset = random.randint(model.log_start, model.end)
    isolation = random.choice(list(FetchIsolation))
    max_bytes = random.choice((1, 300, ALL_BYTES))
    cached_only = random.random() < 0.25
    return Work(
        f"read {isolation.value} at {offset}, {max_bytes} bytes{' if cached' * cached_only}",
        lambda: log.reader.read(
            offset, max_bytes=max_bytes, isolation=isolation, cached_only=cached_only
        ),
        lambda history, outcome: judging.was_read(
            history, outcome, offset=offset, max_bytes=max_bytes, isolation=isolation
        ),
    )


@planned(6)
def look_up_time(history: History, random: Random) -> Work:
    log = history.scene.log
    timestamp_ms = history.scene.machine.clock.now_ms() + random.randint(-1_700, 2_100)
    return Work(
        f"offset for time {timestamp_ms}",
        lambda: log.reader.offset_for_time(timestamp_ms),
        lambda history, outcome: judging.was_first_at(history, outcome, timestamp_ms),
    )


@planned(4)
def look_up_newest(history: History, random: Random) -> Work:
    return Work("newest record", history.scene.log.reader.max_timestamp, judging.was_newest)


@planned(5)
def listing(history: History, random: Random) -> Work:
    return Work("listing", history.scene.log.reader.listing, judging.was_listed)


@planned(2)
def split(history: History, random: Random) -> Work:
    log, model = history.scene.log, history.scene.driven.model
    start, end = model.log_start, model.high_watermark
    return Work(
        f"splits of {start} to {end}",
        lambda: log.reader.splits(start, end, parts=3),
        lambda history, outcome: judging.was_split(history, outcome, start=start, end=end),
    )


@planned(3)
def download(history: History, random: Random) -> Work:
    log = history.scene.log
    base_offset = random.choice([segment.base_offset for segment in log.reader.segments])

    def act() -> Any:
        file = log.reader.open_file(base_offset, FileKind.LOG)
        return file, bytes(log.reader.read_file(file, 0, 1 << 20)) if file.size_bytes else b""

    return Work(f"download of {base_offset}", act, judging.was_downloaded)


@planned(1)
def look_into(history: History, random: Random) -> Work | None:
    if not history.is_first("look into"):
        return None
    return Work("check of invariants", history.scene.log.maintenance.check_invariants)


@planned(1)
def scrub(history: History, random: Random) -> Work | None:
    """The scrubber has one thread."""
    if not history.is_first("scrub"):
        return None
    return Work("scrub", history.scene.machine.runtime.scrubber.run_pass, judging.was_scrubbed)


@planned(4)
def archive(history: History, random: Random) -> Work | None:
    """The archive of a log is visited by one thread at a time."""
    if not history.is_first("archive"):
        return None
    archiving = Archiving(history.scene)
    if random.random() < 0.6:
        archiving.visit()

    def judge(history: History, outcome: Outcome) -> None:
        judging.succeeded(history, outcome)
        if not history.is_closing:
            archiving.check()

    return Work("visit of the archive", archiving.visit, judge)
