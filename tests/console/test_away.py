"""A service that stops and comes back under the page, and one that asks for a key."""

from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Console, browsing
from tests.support.credentials import create_key
from tests.support.server import serving

pytestmark = pytest.mark.needs("chromium", "console")


def put_topic(url: str, token: str = "") -> None:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=url, headers=headers) as client:
        client.put("/v1/topics/events", json={}).raise_for_status()
        client.post("/v1/topics/events/records", json={"records": [{"value": "one"}]})


def test_a_restarted_service_is_found_again(browser: Browser, tmp_path: Path) -> None:
    """While it is away the page says so and keeps what it shows; then it goes on by itself."""
    with ExitStack() as first:
        served = first.enter_context(serving(tmp_path / "data"))
        put_topic(served.url)
        port = int(served.url.rpartition(":")[2])
        with browsing(browser, served.url) as console:
            console.page.clock.install()
            console.open("topics/events/messages?from=live")
            console.text("Live").wait_for()
            console.page.get_by_role("link", name="Topics").first.click()
            console.page.get_by_role("link", name="events").wait_for()
            first.close()
            console.page.clock.fast_forward("00:30")
            console.text("The service does not answer").wait_for()
            expect(console.page.get_by_role("link", name="events")).to_be_visible()
            with serving(tmp_path / "data", port=port):
                console.page.clock.fast_forward("00:30")
                console.text("The service does not answer").wait_for(state="hidden")
                console.page.goto("about:blank")  # it asks no more when the service ends
            console.errors.clear()  # the browser reports each connection that failed


def test_a_tail_that_is_cut_off_says_so(browser: Browser, tmp_path: Path) -> None:
    """Not “Live” while the service is down; live again with what came meanwhile."""
    with ExitStack() as first:
        served = first.enter_context(serving(tmp_path / "data"))
        put_topic(served.url)
        port = int(served.url.rpartition(":")[2])
        with browsing(browser, served.url) as console:
            console.open("topics/events/messages?from=live")
            state = console.page.locator(".progress")
            state.get_by_text("Live", exact=True).wait_for()
            first.close()
            state.get_by_text("Not connected").wait_for()
            with serving(tmp_path / "data", port=port) as again:
                state.get_by_text("Live", exact=True).wait_for()
                put_topic(again.url)
                console.rows("Messages").first.wait_for()
                console.page.goto("about:blank")  # it asks no more when the service ends
            console.errors.clear()  # the browser reports each connection that failed


def open_with_key(console: Console, path: str, token: str) -> None:
    """Load a page and give it the key that it asks for."""
    console.open(path)
    console.page.get_by_label("Key or token").fill(token)
    console.button("Use it").click()
    console.page.get_by_role("dialog").wait_for(state="hidden")
    console.errors.clear()  # the browser reports every answer 401


def test_a_key_that_reads_sees_no_button_it_may_not_press(browser: Browser, tmp_path: Path) -> None:
    """No create, delete, change, append or replay; the charts say which scope they need."""
    admin = create_key(tmp_path / "data", "admin", "read:*", "append:*", "admin:*")
    reader = create_key(tmp_path / "data", "reader", "read:*")
    with serving(tmp_path / "data") as served:
        put_topic(served.url, admin)
        with browsing(browser, served.url) as console:
            open_with_key(console, "topics/events/messages?open=0/0", reader)
            console.text("Offset 0").wait_for()
            expect(console.button("Replay to a topic")).to_have_count(0)
            console.page.get_by_role("link", name="Configuration").click()
            console.page.get_by_text("retention.ms").first.wait_for()
            names = ("Delete topic", "Add partitions", "No changes", "Use default")
            for name in names:
                expect(console.button(name)).to_have_count(0)
            expect(console.page.get_by_label("retention.ms", exact=True)).to_have_count(0)
            console.page.get_by_role("link", name="Produce").click()
            console.text("may not append").wait_for()
            console.page.get_by_role("link", name="Overview").click()
            console.text("need a key with the scope").wait_for()
            console.page.get_by_role("navigation").get_by_role("link", name="Topics").click()
            console.page.get_by_role("link", name="events").wait_for()
            expect(console.button("Create topic")).to_have_count(0)
            console.page.goto("about:blank")  # it asks no more
            console.errors.clear()  # 403 of what a page asked before it knew the scopes


def test_a_key_is_forgotten_by_a_reload_unless_it_is_kept(browser: Browser, tmp_path: Path) -> None:
    """In memory by default; in the tab's session storage when the person says so."""
    token = create_key(tmp_path / "data", "reader", "read:*")
    with serving(tmp_path / "data") as served, browsing(browser, served.url) as console:
        open_with_key(console, "topics", token)
        console.page.reload()
        console.page.get_by_label("Key or token").fill(token)
        console.page.get_by_label("Keep it until this tab is closed").check()
        console.button("Use it").click()
        console.text("There are no topics yet").wait_for()
        console.page.reload()
        console.text("There are no topics yet").wait_for()
        expect(console.button("API key in use")).to_be_visible()
        stored = console.page.evaluate("[Object.keys(localStorage).length, document.cookie]")
        assert stored == [0, ""]
        console.errors.clear()  # the answers 401


def test_the_console_works_below_a_prefix(browser: Browser, tmp_path: Path) -> None:
    """Whatever the page loads lies below it: a proxy knows the service by nothing else."""
    with serving(tmp_path / "data", url_prefix="/logs/tide") as served:
        put_topic(served.url)
        asked: list[str] = []
        with browsing(browser, f"{served.url}/logs/tide") as console:
            console.page.on("request", lambda request: asked.append(urlsplit(request.url).path))
            console.open()
            console.page.get_by_role("link", name="Topics").first.click()
            console.page.get_by_role("link", name="events").click()
            console.rows("Messages").first.click()
            console.page.get_by_label("Value as").first.wait_for()
            console.page.reload()
            console.page.get_by_label("Value as").first.wait_for()
            console.open("topics/events/log")
            console.text("Inside segment 0").wait_for()
            with console.page.expect_download() as download:
                console.page.get_by_role("link", name="Download .log").first.click()
            assert Path(download.value.path()).stat().st_size > 61
            console.open("topics/events/produce")
            console.open("topics/events/messages?from=live")
            console.text("Live").wait_for()
            reference = console.page.get_by_role("link", name="API reference")
            expect(reference).to_have_attribute("href", "/logs/tide/docs")
        assert [path for path in asked if not path.startswith("/logs/tide/")] == []
        assert len(asked) > 20
