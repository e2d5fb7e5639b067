"""A power cut after a truncation restores no index entry of what was cut."""

from __future__ import annotations

import pytest

from tests.support.builders import World, new_batch
from tests.support.logs import read_values, with_config


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_no_entry_of_what_was_cut_comes_back_after_a_roll(cut: int) -> None:
    """The index is trimmed at the roll, and not synced before the power goes.

    An old entry pointed past the end of a sealed log file, and a compacted log was called damaged.
    """
    world = World()
    config = with_config(cleanup_policy=("compact",), index_interval_bytes=1)
    log = world.open_log(config)
    for _ in range(4):
        log.append(new_batch())
    log.durability.flush()
    recovery_point = log.truncate_to(cut)
    log.roll()
    log.durability.commit()
    world.restart(power_cut=True)
    log = world.open_log(config, recovery_point=recovery_point)
    assert log.durability.recovery.damage is None
    assert log.watermarks.log_end_offset == cut
    assert len(read_values(log)) == cut
