"""What the cleaner would clean, without cleaning."""

import pytest

from engine.errors import PolicyViolation
from tests.support.builders import World
from tests.support.compaction import Compacted


def dirty(**overrides: object) -> Compacted:
    """A log with something to clean."""
    compacted = Compacted(World(), overrides)
    compacted.put(("a", "1"), ("b", "1"))
    compacted.put(("a", "2"))
    compacted.seal()
    return compacted


def test_a_preview_names_the_range_that_is_cleaned_next() -> None:
    """It changes nothing; cleaned offsets count as clean, the active segment not at all."""
    compacted = dirty()
    before = compacted.batches()
    found = compacted.cleaner.preview(compacted.log)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 3)
    assert (found.clean_bytes, found.ratio) == (0, 1.0)
    assert compacted.batches() == before
    compacted.cleaner.clean_now(compacted.log)
    again = compacted.cleaner.preview(compacted.log)
    assert (again.first_dirty_offset, again.first_uncleanable_offset) == (3, 3)
    assert again.clean_bytes > again.cleanable_bytes == 0


def test_a_log_that_is_not_compacted_has_no_preview() -> None:
    """As with `clean_now`, the reason is its cleanup policy."""
    compacted = dirty(**{"cleanup.policy": "delete"})
    with pytest.raises(PolicyViolation):
        compacted.cleaner.preview(compacted.log)
