"""Theme and time zone are a person's own, and stay in the browser."""

import re

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Console, browsing
from tests.support.server import Served

pytestmark = pytest.mark.needs("chromium", "console")


def ground(console: Console) -> str:
    colour: str = console.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


def test_a_theme_stays_until_another_is_chosen(browser: Browser, served: Served) -> None:
    """Whatever the system prefers, also after a reload; the system's choice leaves nothing."""
    with browsing(browser, served.url, color_scheme="light") as console:
        console.open("")
        light = ground(console)
        console.page.get_by_label("Theme").select_option("dark")
        assert ground(console) != light
        console.page.reload()
        console.text("Write the first record").wait_for()
        assert ground(console) != light
        console.page.get_by_label("Theme").select_option("system")
        assert ground(console) == light
        assert console.page.evaluate("localStorage.length") == 0


def test_times_are_written_in_the_chosen_zone(
    browser: Browser, served: Served, client: httpx.Client
) -> None:
    """Local ones by default; the other zone is a hover away, in lists and in details."""
    client.put("/v1/topics/events", json={"config": {"retention.ms": "-1"}})
    record = {"value": 1, "timestamp": 1_788_000_000_000}  # 2026-08-29T10:40:00Z
    client.post("/v1/topics/events/records", json={"records": [record]}).raise_for_status()
    with browsing(browser, served.url, timezone_id="Asia/Tokyo") as console:
        console.open("topics/events/messages?open=0/0&from=earliest")
        row = console.rows("Messages").first
        row.get_by_text("2026-08-29 19:40:00.000").wait_for()
        detail = console.page.get_by_label("Message", exact=True).locator("time").first
        expect(detail).to_have_attribute("title", re.compile(re.escape("2026-08-29T10:40:00.000Z")))
        console.page.get_by_label("Time zone").select_option("UTC")
        row.get_by_text("2026-08-29 10:40:00.000Z").wait_for()
        expect(detail).to_have_attribute(
            "title", re.compile(re.escape("2026-08-29 19:40:00.000 local"))
        )
        console.page.reload()
        row.get_by_text("2026-08-29 10:40:00.000Z").wait_for()
