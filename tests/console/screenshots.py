"""`make screenshots`: the pictures of docs/console.md, from a service with real flights.

A folder as the argument takes them there instead, and at 360 pixels too: to look at, not to keep.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
from playwright.sync_api import Browser, Page

from demo.data import load_flights, load_weather
from tests.console.small_png import small
from tests.support.browser import Console, browsing, launched
from tests.support.process import serving_process

KEPT: Final = Path(__file__).parents[2] / "docs" / "console"
PAGES: Final = {
    "overview": "",
    "topics": "topics",
    "create": "topics?create=1",
    "messages": "topics/flights/messages?filter=value.dest+%3D+MIA&open=1/3&from=earliest",
    "live": "topics/clicks/messages?from=live",
    "partitions": "topics/flights/partitions",
    "configuration": "topics/flights/configuration",
    "produce": "topics/flights/produce",
    "log": "topics/flights/log?partition=3&axis=bytes",
    "ingest": "topics/webhooks.github/ingest",
    "groups": "groups/delays",
    "subscriptions": "subscriptions",
    "service": "service",
}
FLIGHTS: Final = 60_000
WATCHED_MS: Final = 60_000
"""How long the overview is left to draw its charts."""


@contextmanager
def clicking(url: str) -> Iterator[None]:
    """Append a few records ten times a second until the block ends."""
    stopped = threading.Event()

    def click() -> None:
        with httpx.Client(base_url=url) as client:
            turn = 0
            while not stopped.wait(0.1):
                turn += 1
                records = [
                    {"key": f"visitor-{n}", "value": {"page": f"/flights/{turn}", "ms": 3 * n}}
                    for n in range(1 + turn % 7)
                ]
                client.post("/v1/topics/clicks/records", json={"records": records})

    thread = threading.Thread(target=click)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def fill(url: str) -> None:
    """Create topics of several kinds; two hold the flights and the weather of the demo."""
    with httpx.Client(base_url=url, timeout=60) as client:
        kept = {"retention.ms": "-1", "segment.bytes": "1048576"}
        topics: dict[str, tuple[int, dict[str, str]]] = {
            "flights": (4, kept),
            "weather": (1, kept),
            "clicks": (2, {"retention.ms": "86400000"}),
            "airports": (1, {"cleanup.policy": "compact"}),
            "webhooks.github": (1, {}),
            "payments-eu-west-1.ledger.entries.v2.by-account-and-currency": (3, {}),
        }
        for topic, (partitions, config) in topics.items():
            body = {"partitions": partitions, "config": config}
            client.put(f"/v1/topics/{topic}", json=body).raise_for_status()
        for topic, table in (("flights", load_flights()), ("weather", load_weather())):
            records = islice(table.records(), FLIGHTS)
            while lines := [one.line for one in islice(records, 2_000)]:
                client.post(
                    f"/v1/topics/{topic}/records",
                    content=b"".join(line.rstrip(b"\n") + b"\n" for line in lines),
                    headers={"content-type": "application/x-ndjson"},
                ).raise_for_status()
        for partition in range(4):
            path = f"/v1/groups/delays/offsets/flights/{partition}"
            client.put(path, json={"offset": 4_000 + 2_500 * partition}).raise_for_status()
        for name, topic in (("billing", "flights"), ("mirror", "clicks")):
            wanted = {"topics": [topic], "url": f"https://8.8.8.8/{name}", "paused": True}
            client.put(f"/v1/subscriptions/{name}", json=wanted).raise_for_status()
        client.post("/v1/topics/webhooks.github/ingest", content=b"")  # refused, and shown as such


def photograph(browser: Browser, url: str, folder: Path, size: dict[str, Any]) -> None:
    """Take every page in light and dark; the overview last, when its charts have something."""
    desk = browser.new_page()
    for scheme in ("light", "dark"):
        with browsing(browser, url, viewport=size, color_scheme=scheme) as console:
            console.open()
            for name, path in {**PAGES, "overview": ""}.items():
                if name != "overview":
                    photo(console, desk, path, folder / f"{name}-{scheme}.png")
            console.page.get_by_role("link", name="Overview").click()
            console.page.wait_for_timeout(WATCHED_MS)
            take(console.page, desk, folder / f"overview-{scheme}.png")


def photo(console: Console, desk: Page, path: str, file: Path) -> None:
    console.open(path)
    console.page.wait_for_timeout(2_500)
    take(console.page, desk, file)


def take(page: Page, desk: Page, file: Path) -> None:
    """Keep what a page shows; `desk` is an empty page to work on the picture."""
    file.write_bytes(small(desk, page.screenshot()))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else KEPT
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as data, serving_process(Path(data)) as process:
        fill(process.url)
        with clicking(process.url), launched() as browser:
            photograph(browser, process.url, folder, {"width": 1120, "height": 700})
            if folder != KEPT:
                narrow = folder / "narrow"
                narrow.mkdir(exist_ok=True)
                photograph(browser, process.url, narrow, {"width": 360, "height": 720})


if __name__ == "__main__":
    main()
