"""A new user: an empty service, the first topic and record, and what appears without a reload."""

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.browser import Console

pytestmark = pytest.mark.needs("chromium", "console")


def test_the_first_record_appears_while_the_person_watches(
    console: Console, client: httpx.Client
) -> None:
    """A fresh service shows the commands that write a record; topic and record then appear."""
    console.open()
    console.text("Write the first record").wait_for()
    console.open("topics")
    console.text("curl -X PUT").wait_for()
    client.put("/v1/topics/events", json={}).raise_for_status()
    console.page.get_by_role("link", name="events").click()
    console.button("Live").click()
    console.text("Waiting for the next record").wait_for()
    record = {"key": "first", "value": {"hello": "<img src=x onerror=alert(1)>"}}
    client.post("/v1/topics/events/records", json={"records": [record]}).raise_for_status()
    row = console.rows("Messages").first
    row.wait_for()
    expect(row).to_contain_text("<img src=x onerror=alert(1)>")


def test_a_topic_is_created_found_and_deleted(console: Console, client: httpx.Client) -> None:
    """The form takes Kafka's keys in human units; deleting asks for the name."""
    client.put("/v1/topics/other", json={}).raise_for_status()
    console.open("topics")
    console.button("Create topic").first.click()
    console.page.get_by_label("Name", exact=True).fill("web events")
    console.text("letters, digits").wait_for()
    console.page.get_by_label("Name", exact=True).fill("web-events")
    console.page.get_by_label("Partitions").fill("3")
    console.page.get_by_label("retention.ms").fill("2 d")
    console.page.get_by_role("dialog").get_by_role("button", name="Create topic").click()
    console.page.get_by_role("heading", name="web-events").wait_for()
    topic = client.get("/v1/topics/web-events").json()
    assert (topic["partitions"], topic["config"]["retention.ms"]["value"]) == (3, "172800000")
    console.open("topics")
    console.page.get_by_label("Search topics").fill("web")
    console.text("1 of 2 topics").wait_for()
    console.open("topics/web-events/configuration")
    console.button("Delete topic").click()
    confirm = console.page.get_by_role("dialog").get_by_role("button", name="Delete topic")
    expect(confirm).to_be_disabled()
    console.page.get_by_label("Type the topic's name").fill("web-events")
    confirm.click()
    console.page.get_by_role("heading", name="Topics", exact=True).wait_for()
    assert client.get("/v1/topics/web-events").status_code == 404


def test_keys_lead_to_pages(console: Console, client: httpx.Client) -> None:
    """`g t` goes to the topics, `/` to the search, arrows move in the list."""
    for name in ("a", "b"):
        client.put(f"/v1/topics/{name}", json={}).raise_for_status()
    console.open()
    console.page.keyboard.press("g")
    console.page.keyboard.press("t")
    console.page.get_by_role("heading", name="Topics", exact=True).wait_for()
    console.page.get_by_label("Search topics").wait_for()
    console.page.keyboard.press("/")
    console.page.keyboard.type("a")
    console.text("1 of 2 topics").wait_for()
    console.page.get_by_label("Search topics").fill("")
    console.page.get_by_role("link", name="a", exact=True).focus()
    console.page.keyboard.press("ArrowDown")
    assert console.page.evaluate("document.activeElement.textContent") == "b"
