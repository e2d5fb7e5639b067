"""Functions written in Python that run: they are counted, so that no test looks at a clock."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType


@dataclass
class Calls:
    """How many calls there were, from the beginning of the `with` block on."""

    count: int = 0


@contextmanager
def counted(is_counted: Callable[[CodeType], bool] = lambda _: True) -> Iterator[Calls]:
    """Count the calls of functions on this thread, or of those that are chosen."""
    calls = Calls()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and is_counted(frame.f_code):
            calls.count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
