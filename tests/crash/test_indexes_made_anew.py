"""Power cuts during a rebuild of indexes: the names of files survive, and none of their bytes.

A journal that writes names before contents does that. An incomplete transaction index cannot be
recognized, and it is what hides aborted records from readers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from engine.fs import names
from engine.tools.repair import carry_out, plan_repair
from engine.types import FetchIsolation
from tests.support.builders import DATA, EVENTS, World
from tests.support.damage import PARTITION, Filled, cut_to_nothing, fill, zero_filled
from tests.support.filesystem import PowerCut
from tests.support.logs import read_values

STEPS = range(1, 22)
"""The last of them comes after the indexes are whole."""


@cache
def filled_once() -> tuple[Filled, dict[Path, bytes]]:
    filled = fill()
    fs = filled.world.fs
    folders = (DATA, PARTITION)
    paths = [folder / name for folder in folders for name in fs.list_directory(folder)]
    return filled, {path: fs.read_bytes(path) for path in paths if not fs.is_directory(path)}


def new_copy() -> Filled:
    """The same directory once more; to fill it takes longer."""
    filled, files = filled_once()
    world = World()
    world.fs.make_directory(PARTITION)
    for path, content in files.items():
        with world.fs.open(path, create=True) as file:
            file.append(content)
    return replace(filled, world=world)


def start(filled: Filled) -> None:
    filled.world.open_manager()


def repair(filled: Filled) -> None:
    fs = filled.world.fs
    carry_out(fs, DATA, plan_repair(fs, DATA))


def ensure_nothing_aborted_is_served(filled: Filled) -> None:
    log = filled.reopen().log(EVENTS)
    found = read_values(log, isolation=FetchIsolation.TXN_COMMITTED)
    assert found == list(filled.committed.values())


@pytest.mark.parametrize(
    ("suffix", "work"),
    [
        (names.INDEX_SUFFIX, start),
        (names.TIME_INDEX_SUFFIX, start),
        (names.TXN_INDEX_SUFFIX, repair),
    ],
)
def test_rebuilt_indexes_are_used_once_they_are_complete(
    suffix: str, work: Callable[[Filled], None]
) -> None:
    """Whichever step is the last, the next start finishes the rebuild or starts it again."""
    for step in STEPS:
        filled = new_copy()
        disk = filled.world.disk
        filled.damage(PARTITION / f"{30:020d}{suffix}", zero_filled)
        disk.sync_everything()
        filled.world.restart(power_cut=False)
        with disk.power_cut_before(step), pytest.raises(PowerCut):
            work(filled)
        disk.write_back_names()
        filled.world.restart(power_cut=True)
        ensure_nothing_aborted_is_served(filled)


def test_the_indexes_of_an_interrupted_start_are_rebuilt() -> None:
    """The unfinished time index is not used."""
    filled = fill()
    path = PARTITION / names.time_index_name(30)
    filled.damage(path, cut_to_nothing)
    with filled.world.fs.open(
        path.with_name(path.name + names.TEMPORARY_SUFFIX), create=True
    ) as left:
        left.append(b"\1" * 24)
    ensure_nothing_aborted_is_served(filled)
    assert not any(
        name.endswith(names.TEMPORARY_SUFFIX) for name in filled.world.fs.list_directory(PARTITION)
    )
