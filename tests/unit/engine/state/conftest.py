"""A producer state over a real directory, driven by a clock that stands still."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.fs.posix import PosixFileSystem
from engine.state.producers import ProducerStates
from engine.topic_keys import DAY_MS
from tests.support.producers import ProducerLog
from tests.support.time import ManualClock

OpenStates = Callable[[], ProducerStates]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fs() -> PosixFileSystem:
    return PosixFileSystem()


@pytest.fixture
def open_states(fs: PosixFileSystem, tmp_path: Path, clock: ManualClock) -> OpenStates:
    """Make a new, unloaded state over the same directory, as a restart does."""

    def open_again() -> ProducerStates:
        return ProducerStates(fs, tmp_path, clock=clock, expiration_ms=DAY_MS)

    return open_again


@pytest.fixture
def states(open_states: OpenStates) -> ProducerStates:
    return open_states()


@pytest.fixture
def log(states: ProducerStates) -> ProducerLog:
    return ProducerLog(states)
