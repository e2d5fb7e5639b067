"""What tests of the service's parts share."""

import gc
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """The root logger, put back as it was afterwards."""
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn.error")
    handlers, level, uvicorn_level = root.handlers[:], root.level, uvicorn.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)
    uvicorn.setLevel(uvicorn_level)


@pytest.fixture
def collector() -> Iterator[None]:
    """Python's cycle collector, put back as it was afterwards."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
