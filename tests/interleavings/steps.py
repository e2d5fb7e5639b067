"""Where a thread may be interrupted: in which files, and before which lines.

Other threads only see a change when a thread stores into an object or calls the system. So part of
the schedules count only lines that store: a twentieth of all lines, each interrupted twenty times
as often. A reader that stores its result is found soon.
"""

from __future__ import annotations

import dis
import enum
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import CodeType
from typing import Final

import engine

CHECKOUT: Final = str(Path(engine.__file__).parents[1])
"""Not searched in paths: the folder itself may be called `engine`."""

FOCUSES: Final = (
    ("/engine/log/", "/engine/segment/", "/engine/index/"),
    ("/engine/log/", "/engine/segment/"),
    ("/engine/log/", "/engine/cleaner/", "/engine/manager/", "/engine/background/"),
    ("/engine/",),
)
"""The fewer files, the more interruptions in each of them."""

NEVER: Final = ("/engine/records/", "/engine/fs/", "/engine/errors", "/engine/topic_")
"""Pure functions, the disk, and values."""

STORING: Final = frozenset({"STORE_ATTR", "STORE_SUBSCR", "DELETE_ATTR", "DELETE_SUBSCR"})


class Grain(enum.Enum):
    """What counts as a step."""

    STORE = "lines that store into an object"
    LINE = "lines and returns"
    OPCODE = "opcodes"


@dataclass(frozen=True)
class Steps:
    """The steps that are counted, and in which files."""

    focus: tuple[str, ...]
    grain: Grain
    _lines: dict[CodeType, frozenset[int]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        """Fail if a file has gone elsewhere: then nothing would be interrupted in it."""
        folders = (Path(CHECKOUT, "engine"), Path(__file__).parent)
        files = [path for folder in folders for path in folder.rglob("*.py")]
        paths = [str(path).removeprefix(CHECKOUT) for path in files]
        for part in self.focus:
            assert any(part in path for path in paths), f"there is no {part}"

    def lines_of(self, code: CodeType) -> frozenset[int]:
        """Return the lines of a function that are steps; empty if it is not traced."""
        try:
            return self._lines[code]
        except KeyError:
            lines = self._lines[code] = self._found(code)
            return lines

    def _found(self, code: CodeType) -> frozenset[int]:
        path = code.co_filename.removeprefix(CHECKOUT)
        if any(part in path for part in NEVER) or not any(part in path for part in self.focus):
            return frozenset()
        if self.grain is Grain.STORE:
            return _storing_lines(code)
        return frozenset(line for _, _, line in code.co_lines() if line is not None)

    @property
    def per_line(self) -> float:
        """About how many steps there are for each line of the engine that runs."""
        return {Grain.STORE: 0.05, Grain.LINE: 1, Grain.OPCODE: 6}[self.grain]


def _storing_lines(code: CodeType) -> frozenset[int]:
    found = set()
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line or line
        if instruction.opname in STORING:
            found.add(line)
    return frozenset(found)


ALL: Final = {(focus, grain): Steps(focus, grain) for focus in FOCUSES for grain in Grain}
"""Cached, because each instance caches its analysis of code."""


def drawn_steps(random: Random) -> Steps:
    grain = random.choices(list(Grain), (40, 50, 10))[0]
    return ALL[random.choice(FOCUSES), grain]
