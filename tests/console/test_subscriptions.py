"""Subscriptions: how they are going, a test, pause, and pushing again from elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Console, browsing
from tests.support.server import Served, serving
from tests.support.subscriptions import LOOPBACK, SECRETS

pytestmark = pytest.mark.needs("chromium", "console")

COPY = "/v1/topics/copy/partitions/0/records"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A service that may push to this machine: to its own ingest URLs."""
    with serving(tmp_path / "data", subscription_hosts=LOOPBACK) as served:
        yield served


@pytest.fixture(autouse=True)
def pushed(client: httpx.Client, served: Served) -> None:
    """Three records of a topic, which are pushed into another one."""
    for topic in ("events", "copy"):
        client.put(f"/v1/topics/{topic}", json={}).raise_for_status()
    records = [{"value": {"n": n}} for n in range(3)]
    client.post("/v1/topics/events/records", json={"records": records}).raise_for_status()
    body = {
        "topics": ["events"],
        "url": f"{served.url}/v1/topics/copy/ingest?split=lines",
        "start": "earliest",
        "retry": {"initial_ms": 10, "max_ms": 20},
        "signature": {"secrets": SECRETS},
    }
    client.put("/v1/subscriptions/mirror", json=body).raise_for_status()
    until_copied(client, 3)


def until_copied(client: httpx.Client, count: int) -> None:
    while client.get(COPY).json()["high_watermark"] < count:
        pass  # the service pushes meanwhile


def test_without_one_the_page_shows_how_to_begin(console: Console, client: httpx.Client) -> None:
    """The command that subscribes; administrators alone find the page."""
    client.delete("/v1/subscriptions/mirror").raise_for_status()
    console.open("subscriptions")
    console.text("Nothing is pushed yet").wait_for()


def test_it_is_paused_pushed_again_and_deleted(console: Console, client: httpx.Client) -> None:
    """From the list to the page; only a paused one is pushed again; a deletion is typed."""
    console.open("subscriptions")
    row = console.page.get_by_role("region", name="Subscriptions").locator("tbody tr")
    row.get_by_text("running").wait_for()
    row.get_by_role("link", name="mirror").click()
    part = console.page.get_by_role("region", name="Partitions").locator("tbody tr")
    part.get_by_text("200").wait_for()
    again = console.button("Push events again from…")
    expect(again).to_be_disabled()
    console.button("Send a test").click()
    console.text("The test was answered with 200").wait_for()

    console.button("Pause").click()
    console.text("paused").wait_for()
    again.click()
    console.text("reads 3 offsets again").wait_for()
    console.button("Reset 1 offset").click()
    console.page.get_by_role("dialog").wait_for(state="hidden")
    stored = "/v1/groups/subscription-mirror/offsets/events/0"
    assert client.get(stored).json()["offset"] == 0
    console.button("Start again").click()
    while client.get(stored).json()["offset"] != 3:
        pass  # the same requests once more, of which the receiver keeps each delivery once

    console.button("Delete…").click()
    confirm = console.page.get_by_role("dialog").get_by_role("button", name="Delete subscription")
    expect(confirm).to_be_disabled()
    console.page.get_by_label("Type the subscription's name").fill("mirror")
    confirm.click()
    console.text("Nothing is pushed yet").wait_for()


def test_what_fails_is_seen_with_its_answer(
    browser: Browser, served: Served, client: httpx.Client
) -> None:
    """A receiver that refuses: red in the list, with status, reason and the next attempt."""
    client.delete("/v1/topics/copy").raise_for_status()
    client.post("/v1/topics/events/records", json={"records": [{"value": 1}]}).raise_for_status()
    with browsing(browser, served.url) as console:
        console.open("subscriptions")
        console.text("running, some requests fail").wait_for()
        console.page.get_by_role("link", name="mirror").click()
        part = console.page.get_by_role("region", name="Partitions").locator("tbody tr")
        part.get_by_text("404", exact=True).wait_for()
        console.text("signed with 2 secrets").wait_for()
