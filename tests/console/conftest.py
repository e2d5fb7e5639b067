"""A browser for each module, and for each test a service of its own with a window on it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from tests.support.browser import Console, browsing, launched
from tests.support.server import Served, serving


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module: while it runs, its event loop belongs to the thread of the tests."""
    with launched() as browser:
        yield browser


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data", min_segment_bytes=14) as served:
        yield served


@pytest.fixture
def console(browser: Browser, served: Served) -> Iterator[Console]:
    with browsing(browser, served.url) as console:
        yield console


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    """What a program does beside the person at the console."""
    with httpx.Client(base_url=served.url) as client:
        yield client
