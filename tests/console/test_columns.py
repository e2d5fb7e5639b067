"""Messages as a table: columns, views by name, files; a message that is changed and sent again."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, expect

from tests.console.test_messages import fill
from tests.support.browser import Console

pytestmark = pytest.mark.needs("chromium", "console")

FLIGHTS = [
    {
        "key": f"k{n}",
        "value": {"dest": "MIA" if n % 2 else "BOS", "delay": n, "a.b": [n], "tags": {"x": None}},
        "headers": [{"key": "type", "value": "flight"}],
    }
    for n in range(6)
]


@pytest.fixture
def flights(console: Console, client: httpx.Client) -> Console:
    fill(client, "flights", FLIGHTS)
    return console


def cells(console: Console, row: int) -> Locator:
    return console.rows("Messages").nth(row).locator(".m-column")


def test_columns_are_chosen_typed_and_in_the_address(flights: Console) -> None:
    """From members, quoted names, headers; what is not there is a dash, kinds have colours."""
    flights.open("topics/flights/messages?from=earliest")
    flights.button("Columns").click()
    flights.page.get_by_label("value.dest").check()
    expect(cells(flights, 0)).to_have_text(["BOS"])
    expect(cells(flights, 1)).to_have_text(["MIA"])
    typed = flights.page.get_by_label("Columns", exact=True).and_(flights.page.locator("input"))
    typed.fill('value.delay value["a.b"] header.type value.nothing value.tags')
    expect(cells(flights, 3)).to_have_text(["3", "[3]", "flight", "\N{EN DASH}", '{"x":null}'])
    kinds = cells(flights, 0).evaluate_all("all => all.map(one => one.className)")
    assert ["json-number" in kinds[0], "json-string" in kinds[2]] == [True, True]
    flights.page.reload()
    expect(cells(flights, 3).first).to_have_text("3")
    flights.button("Columns").click()
    typed.fill("valeu.x")
    flights.text("is not a field").wait_for()


def test_a_view_is_kept_by_its_name(flights: Console) -> None:
    """Filter and columns together, for the topic, in this browser."""
    flights.open(
        "topics/flights/messages?from=earliest&columns=value.delay&filter=value.dest+%3D+MIA"
    )
    flights.button("Columns").click()
    flights.page.get_by_label("Name of this view").fill("late")
    flights.button("Save filter and columns").click()
    flights.open("topics/flights/messages?from=earliest")
    flights.button("Columns").click()
    flights.page.get_by_role("link", name="late").click()
    flights.rows("Messages").nth(3).wait_for(state="detached")
    flights.rows("Messages").nth(2).wait_for()
    expect(flights.rows("Messages").first.locator(".m-column")).to_have_text("1")
    flights.button("Forget late").click()
    expect(flights.page.get_by_role("link", name="late")).to_have_count(0)


def test_the_message_beside_the_list_has_the_width_one_wants(flights: Console) -> None:
    """By the arrow keys and by the pointer; it stays over a reload."""
    flights.open("topics/flights/messages?from=earliest&open=0/0")
    detail = flights.page.get_by_label("Message", exact=True)
    line = flights.page.get_by_role("separator")

    def width(of: Locator) -> float:
        box = of.bounding_box()
        assert box is not None
        return box["width"]

    before = width(detail)
    line.focus()
    for _ in range(4):
        flights.page.keyboard.press("ArrowLeft")
    wide = width(detail)
    assert wide > before + 50
    flights.page.reload()
    assert width(detail) == wide
    box = line.bounding_box()
    assert box is not None
    flights.page.mouse.move(box["x"] + 4, box["y"] + 40)
    flights.page.mouse.down()
    flights.page.mouse.move(box["x"] + 204, box["y"] + 40)
    flights.page.mouse.up()
    assert abs(width(detail) - (wide - 200)) < 15


def saved(console: Console, label: str, *, is_all: bool) -> str:
    console.button("Download").click()
    dialog = console.page.get_by_role("dialog")
    if is_all:
        dialog.get_by_label("Everything that this look finds").check()
    dialog.get_by_label("Format").select_option(label=label)
    with console.page.expect_download() as download:
        dialog.get_by_role("button", name="Download").click()
    dialog.get_by_text("messages are saved").wait_for()
    console.button("Close").click()
    return Path(download.value.path()).read_bytes().decode()


def test_everything_that_a_look_finds_is_saved(console: Console, client: httpx.Client) -> None:
    """Far beyond what is loaded, with partition and offset, as NDJSON and as CSV."""
    values = [{"n": n, "text": 'a, "b"\n' if n % 2 else ""} for n in range(12_000)]
    for at in range(0, len(values), 4000):
        fill(client, "many", ({"value": one} for one in values[at : at + 4000]), partitions=2)
    console.open("topics/many/messages?from=earliest&columns=value.n")
    console.rows("Messages").first.wait_for()
    lines = saved(console, "NDJSON with partition and offset", is_all=True).splitlines()
    found = [json.loads(line) for line in lines]
    assert sorted(json.loads(one["value"])["n"] for one in found) == list(range(12_000))
    assert len({(one["partition"], one["offset"]) for one in found}) == 12_000
    text = saved(console, "CSV", is_all=True)
    rows = list(csv.DictReader(text.splitlines(keepends=True)))
    assert [int(one["value.n"]) for one in rows] == [json.loads(one["value"])["n"] for one in rows]
    assert len(rows) == 12_000
    assert text.splitlines()[0].startswith("partition,offset,timestamp,key,key_encoding,value,")
    loaded = saved(console, "CSV", is_all=False)
    assert 1 < len(loaded.splitlines()) < len(text.splitlines())


def test_a_message_is_changed_and_appended_again(flights: Console, client: httpx.Client) -> None:
    """Key, value and headers are in the form; the message itself stays."""
    flights.open("topics/flights/messages?from=earliest&open=0/0")
    flights.button("Edit and produce").click()
    value = flights.page.get_by_label("Value", exact=True)
    expect(value).to_have_value(re.compile("BOS"))
    assert json.loads(value.input_value()) == FLIGHTS[0]["value"]
    value.fill('{"dest": "SEA"}')
    flights.button("Append record").click()
    flights.text("Appended").wait_for()
    path = "/v1/topics/flights/partitions/0/records?offset=6"
    (record,) = client.get(path).json()["records"]
    assert (record["key"], record["value"]) == ("k0", {"dest": "SEA"})
    assert [one["key"] for one in record["headers"]] == ["type"]


def test_a_message_of_bytes_is_changed_as_a_line(console: Console, client: httpx.Client) -> None:
    """What is no text is in base64, as an append takes it."""
    fill(client, "raw", [{"value": "AP8=", "value_encoding": "base64"}])
    console.open("topics/raw/messages?from=earliest&open=0/0")
    console.button("Edit and produce").click()
    records = console.page.get_by_label("Records")
    expect(records).to_have_value(re.compile("base64"))
    line: dict[str, Any] = json.loads(records.input_value())
    assert (line["value"], line["value_encoding"]) == ("AP8=", "base64")


def names(client: httpx.Client) -> list[str]:
    return [one["topic"] for one in client.get("/v1/topics").json()["topics"]]


def test_a_topic_is_cloned_and_recreated(console: Console, client: httpx.Client) -> None:
    """As it is configured, with keys that the form does not show; without its records."""
    config = {"retention.ms": "-1", "index.interval.bytes": "1024"}
    client.put("/v1/topics/one", json={"partitions": 3, "config": config})
    client.post("/v1/topics/one/records", json={"records": [{"value": 1}]}).raise_for_status()
    before = client.get("/v1/topics/one").json()
    console.open("topics/one/configuration")
    console.button("Clone").click()
    console.text("index.interval.bytes=1024").wait_for()
    console.page.get_by_role("dialog").get_by_role("button", name="Create topic").click()
    console.page.wait_for_url("**/topics/one-copy")
    copy = client.get("/v1/topics/one-copy").json()
    assert (copy["partitions"], copy["config"]) == (3, before["config"])
    console.open("topics/one/configuration")
    console.button("Recreate").click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Delete and recreate")).to_be_disabled()
    dialog.get_by_label("Type the topic's name").fill("one")
    dialog.get_by_role("button", name="Delete and recreate").click()
    dialog.wait_for(state="detached")
    again = client.get("/v1/topics/one").json()
    assert again["topic_id"] != before["topic_id"]
    assert (again["partitions"], again["config"]) == (3, before["config"])
    offsets = client.get("/v1/topics/one/offsets").json()["partitions"]
    assert {one["log_end_offset"] for one in offsets} == {0}


def test_topics_are_deleted_together(console: Console, client: httpx.Client) -> None:
    """Those that are chosen and shown, once their number is typed; one that was changed stays."""
    for name in ("a1", "a2", "a3", "b1"):
        client.put(f"/v1/topics/{name}", json={})
    console.open("topics")
    console.page.get_by_label("Choose all that are listed").check()
    console.page.get_by_label("Search topics").fill("a")
    console.button("Delete 3 topics").click()
    client.patch("/v1/topics/a2", json={"config": {"retention.ms": "1000000"}}).raise_for_status()
    dialog = console.page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Delete topics")).to_be_disabled()
    dialog.get_by_label("Type to confirm").fill("delete 3 topics")
    dialog.get_by_role("button", name="Delete topics").click()
    dialog.get_by_text("1 topic could not be deleted").wait_for()
    assert names(client) == ["a2", "b1"]
    assert console.errors  # the browser's line about 412
    console.errors.clear()
