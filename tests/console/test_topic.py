"""Produce and configuration: what the person typed is what the log gets."""

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.browser import Console

pytestmark = pytest.mark.needs("chromium", "console")


@pytest.fixture(autouse=True)
def events(client: httpx.Client) -> None:
    """The topic of these tests."""
    client.put("/v1/topics/events", json={"partitions": 2}).raise_for_status()


def values(client: httpx.Client, partition: int = 0) -> list[object]:
    answer = client.get(f"/v1/topics/events/partitions/{partition}/records")
    return [record["value"] for record in answer.json()["records"]]


def test_a_record_is_appended_as_it_was_typed(console: Console, client: httpx.Client) -> None:
    """Key, headers and the JSON digit for digit; the receipt links to it."""
    console.open("topics/events/produce")
    console.page.get_by_label("Key", exact=True).fill("k")
    console.button("Add header").click()
    console.page.get_by_label("Name of header 1").fill("trace")
    console.page.get_by_label("Value of header 1").fill("4bf9")
    console.page.get_by_label("Value", exact=True).fill('{"n": 12345678901234567890}')
    console.page.get_by_label("Partition").select_option("1")
    expect(console.page.get_by_label("The curl")).to_contain_text("12345678901234567890")
    console.button("Append record").click()
    console.page.get_by_role("link", name="offset 0").click()
    console.text("12345678901234567890").wait_for()
    [record] = client.get("/v1/topics/events/partitions/1/records").json()["records"]
    assert (record["key"], record["value"]) == ("k", {"n": 12345678901234567890})
    assert record["headers"] == [{"key": "trace", "value": "4bf9", "encoding": "utf8"}]


def test_a_pasted_file_becomes_one_record_a_line(console: Console, client: httpx.Client) -> None:
    """A line that is a whole record is taken as one; a line that is not JSON is named."""
    console.open("topics/events/produce")
    console.button("NDJSON, many records").click()
    console.page.get_by_label("Records").fill('{"value": 1}\n{"a": 2}\nnot JSON')
    console.text("line 3").wait_for()
    expect(console.button("Append record")).to_be_disabled()
    console.page.get_by_label("Records").fill('{"key": "x", "value": 1}\n{"a": 2}')
    console.page.get_by_label("Partition").select_option("0")
    console.button("Append 2 records").click()
    console.text("Appended").wait_for()
    assert values(client) == [1, {"a": 2}]


def test_a_condition_that_fails_is_explained(console: Console, client: httpx.Client) -> None:
    """412 with what the service says; nothing is written."""
    console.open("topics/events/produce")
    console.page.get_by_label("Value", exact=True).fill("1")
    console.page.get_by_label("Partition").select_option("0")
    console.page.get_by_label("Only if the log end is").fill("7")
    console.button("Append record").click()
    console.text("precondition_failed").wait_for()
    console.errors.clear()  # the browser reports every answer 412
    assert values(client) == []


def test_a_change_is_reviewed_and_never_overwrites_another(
    console: Console, client: httpx.Client
) -> None:
    """The difference is shown first; a topic that changed meanwhile is not changed again."""
    console.open("topics/events/configuration")
    console.page.get_by_label("retention.ms", exact=True).fill("2 d")
    console.button("Review 1 change").click()
    expect(console.page.get_by_role("dialog")).to_contain_text("172800000")
    client.patch("/v1/topics/events", json={"config": {"segment.ms": "1000000"}}).raise_for_status()
    console.button("Apply").click()
    console.text("The topic was changed meanwhile").wait_for()
    console.errors.clear()  # as above
    console.button("Close").click()
    console.button("Review 1 change").click()
    console.button("Apply").click()
    console.text("2 d · set on this topic").wait_for()
    config = client.get("/v1/topics/events").json()["config"]
    assert (config["retention.ms"]["value"], config["segment.ms"]["value"]) == (
        "172800000",
        "1000000",
    )
