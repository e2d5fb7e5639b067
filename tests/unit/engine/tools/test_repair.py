"""The plan of a repair, and that carrying it out leaves a directory without problems."""

import pytest

from engine.errors import DirectoryLocked
from engine.fs import names
from engine.fs.directories import DirectoryLock
from engine.tools.findings import Severity
from engine.tools.repair import carry_out, plan_repair
from tests.support.builders import DATA, EVENTS
from tests.support.damage import (
    PARTITION,
    Damage,
    Filled,
    cut_in_half,
    fill,
    grown,
    one_bit_flipped,
    reversed_bytes,
    zero_filled,
)
from tests.support.logs import read_values


def mend(filled: Filled, *, cut: bool = False) -> None:
    """Carry out a plan as another process would."""
    filled.world.restart(power_cut=False)
    carry_out(filled.world.fs, DATA, plan_repair(filled.world.fs, DATA, cut=cut))


@pytest.mark.parametrize("damage", [cut_in_half, zero_filled, grown, reversed_bytes])
@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000030.index",
        "00000000000000000060.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000030.snapshot",
        "00000000000000000090.snapshot",
        names.LEADER_EPOCH_CHECKPOINT,
    ],
)
def test_whatever_is_derived_is_as_it_was_after_a_repair(name: str, damage: Damage) -> None:
    """The files are the same bytes, and every record is served."""
    filled = fill()
    fs = filled.world.fs
    before = {one: fs.read_bytes(PARTITION / one) for one in fs.list_directory(PARTITION)}
    filled.damage(PARTITION / name, damage)
    mend(filled)
    assert {one: fs.read_bytes(PARTITION / one) for one in before} == before
    assert plan_repair(fs, DATA).problems == ()
    manager = filled.reopen()
    values = [value for value in read_values(manager.log(EVENTS)) if value is not None]
    assert values == list(filled.values.values())


def test_a_plan_writes_nothing_and_names_every_step() -> None:
    """A dry run prints the plan and does not carry it out."""
    filled = fill()
    path = PARTITION / "00000000000000000030.index"
    filled.damage(path, reversed_bytes)
    changes = len(filled.world.disk.changes)
    plan = plan_repair(filled.world.fs, DATA)
    told = [step.sentence(DATA) for step in plan.steps()]
    assert len(filled.world.disk.changes) == changes
    assert [line.split(":")[0] for line in told] == [
        f"events-0/00000000000000000030{suffix}" for suffix in names.INDEX_SUFFIXES
    ]
    assert plan.beyond_repair == ()


def test_damage_stays_as_it_is_without_a_cut() -> None:
    """Lost data cannot be restored; what is left is not removed."""
    filled = fill()
    path = PARTITION / "00000000000000000030.log"
    filled.damage(path, one_bit_flipped)
    content = filled.world.fs.read_bytes(path)
    plan = plan_repair(filled.world.fs, DATA)
    assert [one.file for one in plan.beyond_repair] == [path]
    mend(filled)
    assert filled.world.fs.read_bytes(path) == content
    assert plan_repair(filled.world.fs, DATA).problems != ()


@pytest.mark.parametrize("base_offset", [0, 30, 60])
@pytest.mark.parametrize("damage", [one_bit_flipped, zero_filled, cut_in_half])
def test_a_cut_ends_the_log_before_its_damage(base_offset: int, damage: Damage) -> None:
    """Everything before the damage is served as before, and appends continue after it."""
    filled = fill()
    filled.damage(PARTITION / f"{base_offset:020d}.log", damage)
    plan = plan_repair(filled.world.fs, DATA, cut=True)
    assert plan.beyond_repair == ()
    assert any("is cut at byte" in step.what for step in plan.steps())
    mend(filled, cut=True)
    assert plan_repair(filled.world.fs, DATA).problems == ()
    log = filled.reopen().log(EVENTS)
    end = log.watermarks.log_end_offset
    assert base_offset <= end < base_offset + 30
    kept = [value for offset, value in filled.values.items() if offset < end]
    assert [value for value in read_values(log) if value in filled.values.values()] == kept


def test_a_cut_needs_no_checkpoint_that_can_be_read() -> None:
    """A recovery point that was damaged after the plan was made counts as none."""
    filled = fill()
    filled.damage(PARTITION / "00000000000000000030.log", one_bit_flipped)
    filled.world.restart(power_cut=False)
    plan = plan_repair(filled.world.fs, DATA, cut=True)
    filled.damage(DATA / names.RECOVERY_POINT_CHECKPOINT, zero_filled)
    carry_out(filled.world.fs, DATA, plan)
    assert plan_repair(filled.world.fs, DATA).problems == ()
    assert 30 <= filled.reopen().log(EVENTS).watermarks.log_end_offset < 60


def test_what_opening_tidies_is_a_step_of_the_plan() -> None:
    """It is printed as a step, and only opening does it."""
    filled = fill()
    path = PARTITION / "00000000000000000095.snapshot"
    filled.world.fs.open(path, create=True).close()
    plan = plan_repair(filled.world.fs, DATA)
    told = [step.sentence(DATA) for step in plan.steps()]
    assert told == [f"events-0/{path.name}: it is above the log end: opening removes it"]
    mend(filled)
    assert not filled.world.fs.exists(path)
    assert list(plan_repair(filled.world.fs, DATA).steps()) == []


def test_what_is_refused_is_not_opened() -> None:
    """A plan with refusals is for a person."""
    filled = fill()
    filled.damage(DATA / names.TOPICS_FILE, zero_filled)
    plan = plan_repair(filled.world.fs, DATA)
    assert [one.severity for one in plan.refusals] == [Severity.REFUSED]
    assert plan.beyond_repair == plan.refusals


def test_a_directory_in_use_is_not_repaired() -> None:
    """The lock is taken before the first file is touched."""
    filled = fill()
    filled.damage(PARTITION / "00000000000000000030.index", reversed_bytes)
    plan = plan_repair(filled.world.fs, DATA)
    with DirectoryLock(filled.world.fs, DATA), pytest.raises(DirectoryLocked):
        carry_out(filled.world.fs, DATA, plan)
    assert filled.world.fs.exists(PARTITION / "00000000000000000030.index")


def test_a_damaged_file_of_windows_is_removed() -> None:
    """The next flush writes it again; nothing else is lost with it."""
    filled = fill()
    path = PARTITION / names.PRODUCER_WINDOWS
    filled.damage(path, one_bit_flipped)
    (finding,) = plan_repair(filled.world.fs, DATA).problems
    assert (finding.severity, finding.file) == (Severity.DERIVED, path)
    mend(filled)
    assert not plan_repair(filled.world.fs, DATA).problems
