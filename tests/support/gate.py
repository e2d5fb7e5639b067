"""A disk that holds a move of a partition up, until the test has seen enough."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.support.filesystem import ForgetfulDisk


class Gate(ForgetfulDisk):
    """Stops the first write into the log of a copy until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.opened = threading.Event()

    def enter(self, name: str, path: Path) -> None:
        if name == "append" and "-future" in str(path) and path.suffix == ".log":
            self.reached.set()
            assert self.opened.wait(10)
        super().enter(name, path)
