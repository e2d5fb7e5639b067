"""Leader epochs against a plain list, under any changes."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoint.kafka_files import read_epochs
from engine.fs.names import LEADER_EPOCH_CHECKPOINT
from engine.state.epochs import LeaderEpochCache
from engine.types import EpochOffset
from tests.support.filesystem import ForgetfulDisk

DIRECTORY = Path("/data/events-0")
MOST = 12
NUMBERS = st.integers(0, MOST)
KINDS = st.sampled_from(["assign", "assign", "cut end", "cut start", "flush", "start"])
STEPS = st.lists(st.tuples(KINDS, NUMBERS, NUMBERS), max_size=20)


def assigned(model: list[EpochOffset], epoch: int, start: int) -> list[EpochOffset]:
    """A known epoch changes nothing; otherwise all contradicting entries are removed."""
    if model and model[-1].epoch == epoch and model[-1].start_offset <= start:
        return model
    kept = [one for one in model if one.epoch < epoch and one.start_offset < start]
    return [*kept, EpochOffset(epoch, start)]


def begun_at(model: list[EpochOffset], start: int) -> list[EpochOffset]:
    """Entries before the start are removed, and the epoch of that offset now begins there."""
    before = [one for one in model if one.start_offset <= start]
    in_force = [EpochOffset(one.epoch, start) for one in before[-1:]]
    return [*in_force, *(one for one in model if one.start_offset > start)]


def ensure_agrees(cache: LeaderEpochCache, model: list[EpochOffset]) -> None:
    cache.check_invariants()
    assert list(cache.entries) == model
    assert cache.latest == (model[-1] if model else None)


@given(STEPS)
def test_epochs_agree_with_a_plain_list(steps: list[tuple[str, int, int]]) -> None:
    """After each assignment, truncation from either end, and restart.

    An assignment is on disk at once; a truncation when it was flushed.
    """
    disk = ForgetfulDisk()
    disk.make_directory(DIRECTORY, parents=True)
    disk.sync_everything()
    cache = LeaderEpochCache(disk, DIRECTORY)
    model: list[EpochOffset] = []
    stored = model
    for what, one, other in steps:
        match what:
            case "assign":
                before, model = model, assigned(model, one, other)
                assert cache.assign(one, other) == (model is not before)
                stored = model if model is not before else stored
            case "cut end":
                before, model = model, [entry for entry in model if entry.start_offset < one]
                assert cache.truncate_from_end(one) == (model != before)
            case "cut start":
                before, model = model, begun_at(model, one)
                assert cache.truncate_from_start(one) == (model != before)
            case "flush":
                cache.flush()
                stored = model
            case _:
                disk.restart()
                cache, model = LeaderEpochCache(disk, DIRECTORY), stored
        ensure_agrees(cache, model)
        assert read_epochs(disk, DIRECTORY / LEADER_EPOCH_CHECKPOINT) == stored
