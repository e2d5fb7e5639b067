"""Values that are not text, and values that not everybody at the screen may see."""

import base64
import csv
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Console, browsing
from tests.support.server import serving

pytestmark = pytest.mark.needs("chromium", "console")

AVSC = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},'
    '{"name":"city","type":["null","string"]}]}'
)
ORDERS = [b"\x02\x02\x0aK\xc3\xb6ln", b"\x04\x02\x08Bonn", b"\x06\x00"]
"""Ids 1 to 3; two cities and none, as Avro writes them."""


def fill(client: httpx.Client, values: list[bytes]) -> None:
    client.put("/v1/topics/orders", json={}).raise_for_status()
    records = [
        {"value": base64.b64encode(value).decode(), "value_encoding": "base64"} for value in values
    ]
    client.post("/v1/topics/orders/records", json={"records": records}).raise_for_status()


def test_a_schema_is_tried_stored_used_and_deleted(console: Console, client: httpx.Client) -> None:
    """With the newest value before it is stored; then lists, filters, columns and files have it."""
    fill(client, ORDERS)
    console.open("topics/orders/configuration")
    schema = console.page.get_by_label("Schema", exact=True)
    schema.fill(AVSC.replace("long", "lnog"))
    console.text("The schema cannot be used: the type lnog is not defined.").wait_for()
    schema.fill(AVSC.replace('["null","string"]', '"string"').replace("long", "double"))
    console.text("It does not decode the newest value, offset 2 of partition 0").wait_for()
    schema.fill(AVSC)
    console.text("It decodes the newest value, offset 2 of partition 0.").wait_for()
    console.button("Save schema").click()
    console.button("Delete schema").wait_for()
    console.open("topics/orders/messages?from=earliest&columns=value.city&filter=value.id+<+3")
    rows = console.rows("Messages")
    rows.nth(1).wait_for()
    expect(rows.locator(".m-column")).to_have_text(["Köln", "Bonn"])
    rows.first.click()
    console.page.get_by_label("Value as JSON").get_by_text("Köln").wait_for()
    console.page.get_by_label("Show the value as").get_by_text("Hex").click()
    console.page.get_by_label("Value as Hex").get_by_text("4b c3 b6").wait_for()
    console.button("Download").click()
    console.page.get_by_label("Format").select_option("csv")
    with console.page.expect_download() as download:
        console.page.get_by_role("dialog").get_by_role("button", name="Download").click()
    with Path(download.value.path()).open(newline="") as file:
        assert next(csv.DictReader(file))["value"] == '{"id":1,"city":"Köln"}'
    console.open("topics/orders/configuration")
    console.button("Delete schema").click()
    console.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    console.button("Delete schema").wait_for(state="hidden")
    assert client.get("/v1/topics/orders/value-schema").status_code == 404
    console.open("topics/orders/messages?from=earliest")
    console.rows("Messages").first.get_by_text("02 02 0a 4b").wait_for()


def test_a_value_that_is_not_what_the_schema_says_is_shown_as_bytes(
    console: Console, client: httpx.Client
) -> None:
    """With the reason; the other messages are decoded."""
    fill(client, [*ORDERS, b"\x02\x04"])
    schema = {"format": "avro", "definition": AVSC}
    client.put("/v1/topics/orders/value-schema", json=schema).raise_for_status()
    console.open("topics/orders/messages?from=earliest")
    console.rows("Messages").nth(3).click()
    console.text("does not decode this value: there is no branch 2").wait_for()
    console.page.get_by_label("Value as Hex").wait_for()
    console.rows("Messages").first.get_by_text('"Köln"').wait_for()


def test_hidden_fields_are_on_no_page_and_in_no_file(browser: Browser, tmp_path: Path) -> None:
    """Not in lists, details, tails, deliveries, searches; what lacks them is not sent again."""
    masks = "orders:value.card orders:header.auth orders:key"
    record = {
        "key": "4111",
        "value": {"card": 4111, "n": 1},
        "headers": [{"key": "auth", "value": "4111"}, {"key": "content-type", "value": "a/b"}],
    }
    with (
        serving(tmp_path / "data", console_masked_fields=masks) as served,
        httpx.Client(base_url=served.url) as client,
        browsing(browser, served.url) as console,
    ):
        client.put("/v1/topics/orders", json={"partitions": 1}).raise_for_status()
        path = "/v1/topics/orders/partitions/0/records"
        client.post(path, json={"records": [record]}).raise_for_status()
        console.open("topics/orders/messages?open=0/0")
        console.text("Hidden by the service").wait_for()
        expect(console.button("Edit and produce")).to_have_count(0)
        shown = console.page.locator("main").inner_text()
        assert ("4111" in shown, '"n":1' in shown) == (False, True)
        for view, secret in (("Text", "4111"), ("Hex", "34 31 31 31")):
            console.page.get_by_label("Show the value as").get_by_text(view).click()
            expect(console.page.get_by_label(f"Value as {view}")).not_to_contain_text(secret)
        console.button("Download").click()
        console.text("hide value.card, header.auth, key").wait_for()
        with console.page.expect_download() as download:
            console.page.get_by_role("dialog").get_by_role("button", name="Download").click()
        assert "4111" not in Path(download.value.path()).read_text()
        console.page.get_by_role("dialog").get_by_role("button", name="Close").click()
        console.button("Replay to a topic").first.click()
        console.page.get_by_label("To topic").fill("other")
        console.text("cannot be sent again from this page").wait_for()
        expect(console.button("Append")).to_be_disabled()
        console.open("topics/orders/messages?filter=value.card+%3D+4111")
        console.text("No message").first.wait_for()
        console.open("topics/orders/messages?from=live")
        console.page.locator(".progress").get_by_text("Live", exact=True).wait_for()
        client.post(path, json={"records": [record]}).raise_for_status()
        console.rows("Messages").first.wait_for()
        expect(console.page.locator("main")).not_to_contain_text("4111")
        console.open("topics/orders/ingest")
        console.page.get_by_label("Deliveries").get_by_text("a/b").first.wait_for()
        expect(console.page.locator("main")).not_to_contain_text("4111")
