"""A log on a forgetful disk, driven by rules, against a list.

After each step every reader's bytes, some look-ups and the invariants are compared; a rule compares
all look-ups, and the long test does so after each step. `tests.support.driven_log` changes log and
model; the simulation of the whole engine uses it too.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine.errors import StorageFull
from engine.records.header import Codec
from engine.types import FetchIsolation
from tests.support import driven_log, log_checks
from tests.support.compaction import Compacted
from tests.support.driven_log import DrivenLog
from tests.support.filesystem import PowerCut
from tests.support.inodes import UNLIMITED
from tests.support.log_model import REMEMBERED_BATCHES, LogModel
from tests.support.logs import ALL_BYTES

RETENTION_MS = 600_000
DELETE_RETENTION_MS = 60_000
TOPIC = {
    "segment.bytes": 2_000,
    "segment.ms": 3_600_000,
    "index.interval.bytes": 100,
    "segment.index.bytes": 240,
    "retention.ms": RETENTION_MS,
    "delete.retention.ms": DELETE_RETENTION_MS,
}
TRANSACTIONAL = st.sampled_from(driven_log.TRANSACTIONAL)
PRODUCERS = st.sampled_from(driven_log.IDEMPOTENT) | TRANSACTIONAL
SEEDS = st.none() | st.integers(0, 1_000)


class LogMachine(RuleBasedStateMachine):
    """All operations on a log, in any order."""

    look_up_step = driven_log.LOOK_UP_STEP
    """After each step every so manieth offset and time is looked up."""

    @initialize(policy=st.sampled_from(["delete", "compact,delete"]))
    def open_empty(self, policy: str) -> None:
        self.steps = 0
        self.compacted = Compacted(overrides={**TOPIC, "cleanup.policy": policy})
        self.world = self.compacted.world
        self.driven = DrivenLog(self.compacted.log, self.world.clock, itertools.count())

    @property
    def model(self) -> LogModel:
        return self.driven.model

    # -- writing -----------------------------------------------------------------------------

    @rule(count=st.integers(1, 12), codec=st.sampled_from(list(Codec)), is_checked=st.booleans())
    def append(self, count: int, codec: Codec, is_checked: bool) -> None:  # noqa: FBT001 - by name
        self.driven.append(count, is_checked=is_checked, codec=codec)

    @rule(counts=st.lists(st.integers(1, 4), min_size=2, max_size=4))
    def append_several_batches_at_once(self, counts: list[int]) -> None:
        self.driven.append_several(counts)

    @rule(count=st.integers(1, 6), producer_id=PRODUCERS)
    def append_of_producer(self, count: int, producer_id: int) -> None:
        self.driven.append_of_producer(producer_id, count)

    @rule(producer_id=TRANSACTIONAL, commits=st.booleans(), fences=st.booleans())
    def end_transaction(self, producer_id: int, commits: bool, fences: bool) -> None:  # noqa: FBT001 - by name
        self.driven.end_transaction(producer_id, commits=commits, fences=fences)

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3))
    def begin_epoch_of_producer(self, producer_id: int, count: int) -> None:
        self.driven.begin_epoch(producer_id, count)

    @rule(producer_id=PRODUCERS, back=st.integers(1, REMEMBERED_BATCHES))
    def retry(self, producer_id: int, back: int) -> None:
        self.driven.retry(producer_id, back)

    @rule(producer_id=PRODUCERS, ahead=st.integers(1, 5))
    def be_refused(self, producer_id: int, ahead: int) -> None:
        self.driven.be_refused(producer_id, ahead)

    @rule(remaining_bytes=st.integers(0, 60))
    def append_to_a_full_disk(self, remaining_bytes: int) -> None:
        self.world.disk.remaining_bytes = remaining_bytes
        with pytest.raises(StorageFull):
            self.driven.append(1)
        self.world.disk.remaining_bytes = UNLIMITED

    # -- maintenance -------------------------------------------------------------------------

    @rule(flushes=st.booleans())
    def commit_or_flush(self, flushes: bool) -> None:  # noqa: FBT001 - by name
        if flushes:
            self.driven.flush()
        else:
            self.driven.commit()
        assert self.model.high_watermark == self.model.end

    @rule()
    def roll(self) -> None:
        self.driven.roll()

    @rule()
    def write_checkpoints(self) -> None:
        self.compacted.manager.checkpoint()
        self.driven.saved_log_start = self.model.log_start

    @rule(milliseconds=st.sampled_from([1, 1_000, DELETE_RETENTION_MS, RETENTION_MS // 2]))
    def pass_time(self, milliseconds: int) -> None:
        self.world.scheduler.advance(milliseconds)
        self.driven.see_commits()  # rolls flush in the background

    @rule()
    def run_retention(self) -> None:
        self.driven.run_retention()

    @precondition(lambda self: self.model.high_watermark > self.model.log_start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        bounds = st.integers(self.model.log_start, self.model.high_watermark)
        self.driven.delete_records(data.draw(bounds), self.compacted.manager.delete_records)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        self.truncate_to(data.draw(st.integers(0, self.model.end + 1)))

    def truncate_to(self, offset: int) -> None:
        self.driven.will_be_cut(offset)
        end = self.compacted.manager.truncate(self.driven.log, offset)
        self.driven.was_cut(offset, end)

    @precondition(lambda self: self.driven.was_compacted)
    @rule(seals=st.booleans())
    def compact(self, seals: bool) -> None:  # noqa: FBT001 - by name
        if seals:
            self.compacted.seal()
            self.driven.see_commits()
        self.write_checkpoints()  # records cleaned below the log start must not come back
        self.driven.was_compacted_as(self.compacted.cleaner.clean_now(self.driven.log))

    # -- restarts ----------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        self.compacted.close()
        self.driven.was_stopped()
        self.world.restart(power_cut=True)
        self.reopen(least=self.model.end, has_lost=False)

    @rule()
    def kill(self) -> None:
        least = self.driven.least_end(is_kill=True)
        self.world.restart(power_cut=False)
        self.reopen(least=least, has_lost=False)

    @rule(seed=SEEDS)
    def cut_power(self, seed: int | None) -> None:
        least = self.driven.least_end(is_kill=False)
        self.world.disk.restart(random=None if seed is None else Random(seed))
        self.world.restart(power_cut=False)
        self.reopen(least=least, has_lost=True)

    @rule(
        change=st.integers(1, 16),
        work=st.sampled_from(
            ["append", "roll", "commit", "flush", "retention", "compaction", "truncation"]
        ),
        data=st.data(),
        seed=SEEDS,
    )
    def cut_power_in_the_middle(
        self, change: int, work: str, data: st.DataObject, seed: int | None
    ) -> None:
        offset = data.draw(st.integers(0, self.model.end)) if work == "truncation" else 0
        with self.power_cut_before(change):
            self.work(work, offset)
        self.cut_power(seed)

    @contextlib.contextmanager
    def power_cut_before(self, change: int) -> Iterator[None]:
        with (
            contextlib.suppress(PowerCut),  # it may take fewer changes: then it goes right after it
            self.world.disk.power_cut_before(change, torn=bool(change % 2)),
        ):
            yield

    def work(self, work: str, offset: int) -> None:
        driven = self.driven
        match work:
            case "append":
                driven.append(8)
            case "roll":
                driven.roll()
                self.world.scheduler.run_due()
                driven.see_commits()
            case "commit":
                driven.commit()
            case "flush":
                driven.flush()
            case "retention":
                driven.run_retention()
            case "truncation":
                self.truncate_to(offset)
            case _:
                if driven.was_compacted:
                    self.write_checkpoints()
                    self.compacted.cleaner.clean_now(driven.log)

    def reopen(self, *, least: int, has_lost: bool) -> None:
        """Open the log: it must be a prefix of the list with all committed records."""
        self.compacted.open()
        self.driven.reopen(self.compacted.log, least=least, has_lost=has_lost)

    # -- reading -----------------------------------------------------------------------------

    @rule(
        data=st.data(),
        max_bytes=st.sampled_from([0, 1, 100, 300, 1_000, 5_000, ALL_BYTES]),
        isolation=st.sampled_from(FetchIsolation),
    )
    def read(self, data: st.DataObject, max_bytes: int, isolation: FetchIsolation) -> None:
        model = self.model
        log_checks.check_read(
            self.driven.log,
            model,
            data.draw(st.integers(model.log_start, model.end)),
            max_bytes=max_bytes,
            isolation=isolation,
            end_offset=data.draw(st.none() | st.integers(model.log_start, model.end + 2)),
        )

    @rule()
    def look_up_everything(self) -> None:
        log_checks.check_look_ups(self.driven.log, self.model, step=1)
        log_checks.check_outside(self.driven.log, self.model)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "driven"):
            self.steps += 1
            self.driven.check(self.steps, step=self.look_up_step)


class ThoroughMachine(LogMachine):
    """The same, and every offset and time is looked up after each step."""

    look_up_step = 1


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=25, stateful_step_count=50)


@pytest.mark.long
@pytest.mark.parametrize(
    ("machine", "share"), [(LogMachine, 2), (ThoroughMachine, 8)], ids=["many", "thorough"]
)
def test_a_long_life_agrees_too(machine: type[LogMachine], share: int) -> None:
    """What only many steps lead to is as the model has it."""
    examples = settings().max_examples // share
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=100)
    )
