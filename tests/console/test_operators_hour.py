"""What goes wrong while somebody looks at the first screen is seen there, soon and explained."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Console, browsing
from tests.support.server import Served, serving
from tests.support.service import local

pytestmark = pytest.mark.needs("chromium", "console")

SOON_MS = 3_000
"""Within this much something is to be seen; the page is neither reloaded nor touched."""

PATIENCE_MS = 30_000
"""So long a test waits on a machine that does something else besides."""


@pytest.fixture
def watched(browser: Browser, tmp_path: Path) -> Iterator[tuple[Served, Console]]:
    """A service with two data directories, and its overview."""
    more = (tmp_path / "second",)
    with (
        serving(tmp_path / "data", more_data_directories=more) as served,
        browsing(browser, served.url) as console,
    ):
        with httpx.Client(base_url=served.url) as client:
            client.put("/v1/topics/orders", json={}).raise_for_status()
            client.put("/v1/topics/hooks", json={}).raise_for_status()
            client.put("/v1/groups/billing/offsets/orders/0", json={"offset": 0})
            signature = {"scheme": "github", "secrets": ["a long random text"]}
            profile = {"signature": signature}
            client.put("/v1/topics/hooks/ingest-profile", json=profile).raise_for_status()
        console.open("")
        console.text("Nothing needs attention").wait_for()
        yield served, console


def seen(console: Console, text: str) -> None:
    """Wait until the page says this, and fail if that took long on a machine that is quiet."""
    began: float = console.page.evaluate("performance.now()")
    console.text(text).wait_for(timeout=PATIENCE_MS)
    took = console.page.evaluate("performance.now()") - began
    assert took < SOON_MS or os.getloadavg()[0] > 1.5, f"{text}: seen after {took:.0f} ms"


def test_an_operators_hour(
    watched: tuple[Served, Console], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group falls behind, a sender is refused, a disk fills, a directory fails."""
    served, console = watched
    with httpx.Client(base_url=served.url) as client:
        records = {"records": [{"value": n} for n in range(1_234)]}
        client.post("/v1/topics/orders/partitions/0/records", json=records).raise_for_status()
        seen(console, "1,234")
        behind = console.page.get_by_role("region", name="Groups behind", exact=True)
        expect(behind.get_by_role("link", name="billing")).to_be_visible()

        client.post("/v1/topics/hooks/ingest", content=b"{}")
        seen(console, "signature missing")
        refused = console.page.get_by_role("region", name="Refused last", exact=True)
        expect(refused.get_by_role("link", name="hooks")).to_be_visible()

        look: Any = os.statvfs

        def nearly_full(path: Any) -> Any:
            found = look(path)
            fields = (*found[:3], found.f_blocks // 50, found.f_blocks // 50, *found[5:])
            return os.statvfs_result(fields)

        with monkeypatch.context() as disk:
            disk.setattr(os, "statvfs", nearly_full)
            seen(console, "is nearly full")
            expect(console.text("appends are refused with 507")).to_be_visible()
        console.text("Nothing needs attention").wait_for()

        directory = local(served.service).manager.directories[1]
        directory.fail(OSError(5, "Input/output error"))
        seen(console, f"since a disk failed: {directory.directory}")
        expect(console.text("Look at the disk, then restart the service")).to_be_visible()
