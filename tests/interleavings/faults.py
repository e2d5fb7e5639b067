"""Faults that this engine once had, as changes of its text: the tester has to find each of them.

A change is made in a copy of the engine, which a separate process imports.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.campaign import CHECKOUT


@dataclass(frozen=True)
class Edit:
    """`before`, which the file holds exactly once, becomes `after`."""

    file: str
    before: str
    after: str


@dataclass(frozen=True)
class Fault:
    """A fault, the change that restores it, and works that expose it."""

    name: str
    edits: tuple[Edit, ...]
    works: tuple[str, ...]
    seed: int
    """From here on it shows soon with these works alone."""
    is_rare: bool = False
    """Whether it shows seldom among all works."""


FAULTS: Final = (
    Fault(
        "a reader that fills in a segment's largest time overwrites what an append has noted",
        (
            Edit(
                "engine/segment/segment.py",
                "        return self._maximum\n\n    @property\n    def largest_timestamp",
                "        if self._maximum is NO_MAXIMUM:\n"
                "            entry = self.indexes.time.last_entry\n"
                "            self._maximum = entry if entry.timestamp >= 0 else NO_MAXIMUM\n"
                "        return self._maximum\n\n    @property\n    def largest_timestamp",
            ),
        ),
        ("append", "roll", "listing", "look up time"),
        95,
    ),
    Fault(
        "readers are told of damage while a truncation takes the bytes away",
        (
            Edit(
                "engine/log/read/reader.py",
                "                or view.truncations != state.truncations\n"
                "                or view.segments is not state.local.segments.snapshot\n",
                "",
            ),
            Edit("engine/log/state.py", "        if truncations % 2:\n", "        if False:\n"),
        ),
        ("append", "truncate", "look up time", "read", "download"),
        120,
    ),
    Fault(
        "a commit shows what was appended after its sync began",
        (
            Edit(
                "engine/log/durability.py",
                "                state.raise_high_watermark(commit.target)\n",
                "                state.raise_high_watermark(state.watermarks.end)\n",
            ),
        ),
        ("append", "commit"),
        250,
    ),
    Fault(
        "what is to be cleaned is chosen before the segments of the round are taken",
        (
            Edit(
                "engine/cleaner/cleaner.py",
                "        compaction = log.maintenance.compaction()"
                "  # first, so that any later change makes it stale\n"
                "        try:\n"
                "            with log.durability.health.reading:\n"
                "                dirty = self._range(log, compaction.segments, marks)\n",
                "        dirty = self._range(log, log.reader.segments, marks)\n"
                "        compaction = log.maintenance.compaction()\n"
                "        try:\n"
                "            with log.durability.health.reading:\n",
            ),
        ),
        ("append", "compact", "move", "truncate"),
        180,
    ),
    Fault(
        "a compacted segment is put in place while another thread takes its sources away",
        (
            Edit(
                "engine/log/maintenance.py",
                "        with self._reshaping:\n            self.ensure_current()\n",
                "        if True:\n            self.ensure_current()\n",
            ),
        ),
        ("append", "compact", "retention", "delete records", "truncate", "roll"),
        1030,
        is_rare=True,
    ),
)


def put_back(fault: Fault, folder: Path) -> None:
    """Copy the packages that it concerns into the folder, with the fault in them."""
    ignored = shutil.ignore_patterns("*.pyc", "static")
    for package in {edit.file.partition("/")[0] for edit in fault.edits}:
        shutil.copytree(CHECKOUT / package, folder / package, ignore=ignored)
    for edit in fault.edits:
        path = folder / edit.file
        text = path.read_text(encoding="utf-8")
        assert text.count(edit.before) == 1, f"{edit.file} has changed: {edit.before!r}"
        path.write_text(text.replace(edit.before, edit.after), encoding="utf-8")
