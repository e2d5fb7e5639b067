"""The main tasks without a mouse, and pages that scroll in one place only."""

import re
import shutil
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Console, browsing
from tests.support.server import Served

pytestmark = pytest.mark.needs("chromium", "console")


@pytest.fixture(autouse=True)
def topics(client: httpx.Client) -> None:
    """Three topics; one has sixty records, whose values are long."""
    for name in ("alpha", "beta", "gamma"):
        client.put(f"/v1/topics/{name}", json={}).raise_for_status()
    records = [{"key": f"k{n}", "value": {"n": n, "text": "x" * 300}} for n in range(60)]
    client.post("/v1/topics/beta/records", json={"records": records}).raise_for_status()
    client.put("/v1/groups/late/offsets/beta/0", json={"offset": 0}).raise_for_status()


def press(console: Console, *keys: str) -> None:
    for key in keys:
        console.page.keyboard.press(key)


def typed(console: Console, text: str) -> None:
    console.page.keyboard.type(text)


def test_a_topic_is_found_and_read_by_keys(console: Console) -> None:
    """Search, Enter opens the first that is left; arrows choose a message, Enter opens it."""
    console.open("")
    press(console, "g", "t")
    console.rows("Topics").nth(2).wait_for()
    press(console, "/")
    typed(console, "bet")
    console.page.wait_for_function("document.querySelectorAll('[data-row]').length === 1")
    press(console, "Enter")
    console.rows("Messages").nth(5).wait_for()
    press(console, "ArrowDown", "ArrowDown", "Enter")
    detail = console.page.get_by_label("Message", exact=True)
    detail.get_by_text("Offset 58").wait_for()
    press(console, "Escape")
    detail.wait_for(state="hidden")
    expect(console.page).not_to_have_url(re.compile("open="))
    press(console, "ArrowDown", "Enter")
    detail.get_by_text("Offset 57").wait_for()


def test_a_list_is_entered_from_its_search(console: Console) -> None:
    """Arrow down goes into it, and Escape leaves the search."""
    console.open("topics")
    console.rows("Topics").nth(2).wait_for()
    press(console, "/", "ArrowDown", "ArrowDown")
    assert console.page.evaluate("document.activeElement.textContent") == "beta"
    press(console, "ArrowUp")
    assert console.page.evaluate("document.activeElement.textContent") == "alpha"
    press(console, "/", "Escape")
    assert console.page.evaluate("document.activeElement === document.body")
    press(console, "g", "g")
    console.rows("Groups").first.wait_for()
    press(console, "ArrowDown", "Enter")
    console.text("Oldest unread record").wait_for()


def test_a_topic_is_made_and_a_record_appended_by_keys(console: Console) -> None:
    """From the list through the dialog to the form, each control reached by Tab."""
    console.open("topics")
    console.rows("Topics").nth(2).wait_for()
    console.button("Create topic").focus()
    press(console, "Enter")
    console.page.get_by_role("dialog").wait_for()
    typed(console, "delta")
    press(console, "Enter")
    console.page.wait_for_url("**/topics/delta")
    console.page.get_by_role("link", name="Produce").focus()
    press(console, "Enter")
    console.page.get_by_label("Value", exact=True).focus()
    typed(console, '{"a": 1}')
    console.button("Append record").focus()
    press(console, "Enter")
    console.page.get_by_role("link", name="offset 0").wait_for()


@pytest.fixture
def seen(browser: Browser) -> Iterator[Browser]:
    """A browser that shows its scrollbars, which Playwright hides otherwise."""
    shown = browser.browser_type.launch(
        executable_path=shutil.which("chromium"),
        args=["--no-sandbox"],
        ignore_default_args=["--hide-scrollbars"],
    )
    yield shown
    shown.close()


SCROLLED = """() => [...document.querySelectorAll("html, body *")]
    .filter(one => one.tagName === "HTML"
        ? one.scrollHeight > innerHeight
        : one.offsetWidth - one.clientWidth > 8 && one.scrollHeight > one.clientHeight
            && getComputedStyle(one).overflowY !== "visible")
    .filter(one => one.getBoundingClientRect().height > 0)
    .map(one => one.className || one.tagName)"""
"""What has a scrollbar at its right side."""


@pytest.mark.parametrize("width", [1440, 1024])
def test_no_two_scrollbars_stand_side_by_side(seen: Browser, served: Served, width: int) -> None:
    """A list scrolls, or the page; tabs have no bar of their own."""
    size = {"width": width, "height": 800}
    with browsing(seen, served.url, viewport=size) as console:
        for path in (
            "topics",
            "topics/beta/messages",
            "topics/beta/messages?open=0/59",
            "topics/beta/messages?from=live",
            "topics/beta/partitions",
            "groups",
            "service",
        ):
            console.open(path)
            console.page.wait_for_load_state("load" if "live" in path else "networkidle")
            scrolled = [one for one in console.page.evaluate(SCROLLED) if one != "detail"]
            assert len(scrolled) <= 1, (path, scrolled)
            assert "tabs" not in scrolled


def test_hex_keeps_its_lines(console: Console, client: httpx.Client) -> None:
    """Sixteen bytes a line, however narrow its place: it scrolls instead of wrapping."""
    record = {"value": "AAECAwQFBgcICQoLDA0ODw==", "value_encoding": "base64"}
    client.post("/v1/topics/alpha/records", json={"records": [record]}).raise_for_status()
    console.page.set_viewport_size({"width": 1440, "height": 900})
    console.open("topics/alpha/messages?open=0/0")
    dump = console.page.get_by_label("Value as Hex")
    dump.wait_for()
    height = dump.evaluate("one => one.clientHeight")
    assert height < 2 * 18 + 24  # one line, its padding and a scrollbar


def test_one_is_written_in_the_singular(console: Console, client: httpx.Client) -> None:
    """No “1 partitions” on any page."""
    for name in ("alpha", "gamma"):
        client.delete(f"/v1/topics/{name}").raise_for_status()
    for path in ("", "topics", "topics/beta/partitions", "topics/beta/log", "groups", "service"):
        console.open(path)
        console.page.wait_for_load_state("networkidle")
        text = console.page.locator("main").inner_text()
        for noun in ("partitions", "topics", "groups", "segments", "offsets"):
            assert f"\n1 {noun}" not in text, path
            assert f" 1 {noun}" not in text, path
