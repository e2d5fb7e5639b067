"""A log's end taken back: the checkpoints come along, whenever the power fails."""

from dataclasses import dataclass, field

import pytest

from engine.checkpoint.kafka_files import OffsetCheckpoint
from engine.errors import PreconditionFailed, Recovering
from engine.fs import names
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.types import TopicPartition
from tests.support.builders import DATA, EVENTS, World
from tests.support.filesystem import PowerCut
from tests.support.logs import append_values, fill, read_values, segment_bases

MOST_STEPS = 200
PAIRS = [b"a", b"b"]


@dataclass
class Cut:
    """A log of ten batches of two records, in several segments, all of it in the checkpoints."""

    world: World = field(default_factory=World)
    batches: int = 10

    def __post_init__(self) -> None:
        self.manager: LogManager = self.world.open_manager({EVENTS.topic: 1})
        for number in range(self.batches):
            append_values(self.log, *PAIRS)
            if number % 2:
                self.log.roll()
        self.log.durability.flush()
        self.manager.checkpoint()

    @property
    def log(self) -> Log:
        return self.manager.log(EVENTS)

    def restart(self, *, power_cut: bool) -> None:
        self.world.restart(power_cut=power_cut)
        self.manager = self.world.open_manager()

    def lines(self) -> tuple[int | None, ...]:
        """The log's recovery point, start and high watermark in the checkpoints."""
        return tuple(
            OffsetCheckpoint(self.world.fs, DATA / name).read().get(EVENTS)
            for name in (
                names.RECOVERY_POINT_CHECKPOINT,
                names.LOG_START_CHECKPOINT,
                names.HIGH_WATERMARK_CHECKPOINT,
            )
        )


@pytest.fixture
def cut() -> Cut:
    return Cut()


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("offset", [8, 7, 1, 0])
def test_an_interrupted_truncation_leaves_a_beginning_of_the_log(
    offset: int, *, power_cut: bool
) -> None:
    """After a crash at any step everything below the offset is present.

    A shorter log has another epoch then.
    """
    for step in range(1, MOST_STEPS):
        cut = Cut()
        before = cut.log.reader.leader_epoch
        try:
            with cut.world.disk.power_cut_before(step):
                cut.manager.truncate(cut.log, offset)
            is_done = True
        except PowerCut:
            is_done = False
        cut.restart(power_cut=power_cut)
        end_offset = cut.log.watermarks.log_end_offset
        values = read_values(cut.log)
        assert offset // 2 * 2 <= end_offset <= 20
        assert values == (PAIRS * 10)[: len(values)]
        assert end_offset == 20 or cut.log.reader.leader_epoch > before
        assert cut.log.durability.recovery.damage is None, step
        cut.log.maintenance.check_invariants()
        if is_done:
            assert end_offset == offset
            return
    raise AssertionError("a truncation takes more steps than anybody expected")


@pytest.mark.parametrize("power_cut", [False, True])
def test_what_follows_a_truncation_is_found_by_the_next_start(cut: Cut, power_cut: bool) -> None:  # noqa: FBT001 - parametrized
    """Neither the old recovery point nor the old log start hides later appends."""
    cut.log.delete_records(18)
    cut.manager.checkpoint()
    cut.manager.truncate(cut.log, 6)
    values = fill(cut.log, batches=5)
    cut.log.durability.commit()
    cut.restart(power_cut=power_cut)
    marks = cut.log.watermarks
    assert (marks.log_start_offset, marks.high_watermark, marks.log_end_offset) == (6, 11, 11)
    assert read_values(cut.log) == values
    assert cut.log.durability.recovery.damage is None


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_log_that_was_cut_inside_a_batch_ends_there_after_a_restart(
    cut: Cut, *, was_clean: bool
) -> None:
    """The batch went whole; its offsets are not given out again, and nothing counts as lost."""
    cut.manager.truncate(cut.log, 7)
    if was_clean:
        cut.manager.close()
    cut.restart(power_cut=False)
    assert cut.log.watermarks.log_end_offset == 7
    assert cut.log.durability.recovery.damage is None
    assert append_values(cut.log, b"c") == 7
    cut.log.durability.commit()
    assert read_values(cut.log) == [*PAIRS * 3, b"c"]
    cut.restart(power_cut=True)
    assert read_values(cut.log) == [*PAIRS * 3, b"c"]


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("values", [[], [b"a", b"b", b"c"]])
def test_where_only_a_torn_batch_was_nothing_is_left(
    values: list[bytes], *, was_clean: bool
) -> None:
    """No empty segment is left: its file's time would count as the time of its records."""
    cut = Cut(World(), batches=0)
    if values:
        append_values(cut.log, *values)
        cut.log.roll()
    base_offset = append_values(cut.log, *PAIRS)
    cut.manager.truncate(cut.log, base_offset + 1)
    assert segment_bases(cut.log) == [*([0] if values else []), base_offset + 1]
    append_values(cut.log, b"d")
    if was_clean:
        cut.manager.close()
    cut.restart(power_cut=False)
    marks = cut.log.watermarks
    assert (marks.log_start_offset, marks.log_end_offset) == (0 if values else 1, base_offset + 2)
    assert cut.log.durability.recovery.damage is None
    assert read_values(cut.log) == [*values, b"d"]
    found = cut.log.reader.offset_for_time(0)
    assert found is not None
    assert found.offset == marks.log_start_offset


def test_the_checkpoints_are_true_afterwards(cut: Cut) -> None:
    """They have the new end at once, not with the next pass."""
    assert cut.lines() == (20, None, 20)
    assert cut.manager.truncate(cut.log, 9) == 9
    assert cut.lines() == (9, None, 9)
    cut.log.delete_records(5)
    assert cut.manager.truncate(cut.log, 8) == 8
    assert cut.lines() == (8, 5, 8)


def test_a_truncation_that_is_refused_takes_nothing_along(cut: Cut) -> None:
    """If the log has grown since the caller looked, log and checkpoints stay."""
    tag = cut.log.reader.tag
    append_values(cut.log, b"c")
    with pytest.raises(PreconditionFailed):
        cut.manager.truncate(cut.log, 4, expected_tag=tag)
    assert cut.log.watermarks.log_end_offset == 21
    assert cut.lines() == (20, None, 21)
    assert cut.manager.truncate(cut.log, 30) == 21


def test_other_logs_keep_their_lines(cut: Cut) -> None:
    """Only one log's lines are lowered."""
    cut.manager.create_topic("other", 1, {})
    other = cut.manager.log(TopicPartition("other", 0))
    fill(other, batches=15)
    other.durability.flush()
    cut.manager.truncate(cut.log, 4)
    checkpoint = OffsetCheckpoint(cut.world.fs, DATA / names.RECOVERY_POINT_CHECKPOINT)
    assert checkpoint.read() == {EVENTS: 4, other.topic_partition: 15}


def test_a_closed_directory_is_not_truncated(cut: Cut) -> None:
    """Nor are its checkpoints changed."""
    log = cut.log
    cut.manager.close()
    with pytest.raises(Recovering):
        cut.manager.truncate(log, 3)
    assert cut.lines() == (20, None, 20)
