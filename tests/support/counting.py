"""Functions written in Python that run: they are counted, so that no test looks at a clock."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import app
import engine

OURS: Final = (*(str(Path(room.__file__ or "").parent) for room in (app, engine)), "<string>")
"""Where functions of ours are; those of named tuples have no file."""


def is_ours(code: CodeType) -> bool:
    """Whether a function is the project's own."""
    return code.co_filename.startswith(OURS)


@dataclass
class Calls:
    """The calls from the beginning of the `with` block on."""

    count: int = 0
    called: set[CodeType] = field(default_factory=set)


@contextmanager
def counted(is_counted: Callable[[CodeType], bool] = lambda _: True) -> Iterator[Calls]:
    """Count the calls of functions, or of those that are chosen.

    Of this thread, and of those that are started meanwhile.
    """
    calls = Calls()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and is_counted(frame.f_code):
            calls.count += 1
            calls.called.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
