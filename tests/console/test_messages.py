"""Messages: found by filters, followed live, exact to the byte, downloaded and replayed."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from engine.records.builder import build_batch
from tests.support.boundaries import TEXTS
from tests.support.browser import Console, browsing
from tests.support.builders import new_batch
from tests.support.server import serving
from tests.support.service import RAW
from tests.support.time import START_MS

pytestmark = pytest.mark.needs("chromium", "console")

FAR = 2**53 + 1
"""An offset that a JavaScript number cannot hold."""


def fill(client: httpx.Client, topic: str, records: Iterable[object], partitions: int = 1) -> None:
    config = {"retention.ms": "-1"}
    client.put(f"/v1/topics/{topic}", json={"partitions": partitions, "config": config})
    body = {"records": list(records)}
    client.post(f"/v1/topics/{topic}/records", json=body).raise_for_status()


def download_all(console: Console) -> None:
    console.button("Download").click()
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Download").click()
    dialog.get_by_role("button", name="Close").click()


def test_a_record_is_found_by_a_member_of_its_value(console: Console, client: httpx.Client) -> None:
    """The filter reads the whole topic, says how far it is, and compares 64-bit numbers exactly."""
    fill(
        client,
        "orders",
        ({"key": f"k{n}", "value": {"id": 9_007_199_254_740_993 + n}} for n in range(3000)),
        partitions=3,
    )
    console.open("topics/orders/messages?from=earliest")
    console.page.get_by_label("Filter messages").fill("value.id = 9007199254742225")
    console.button("Search").click()
    console.text("all read").wait_for()
    expect(console.rows("Messages")).to_have_count(1)
    console.rows("Messages").first.click()
    expect(console.page.get_by_label("Value as JSON")).to_contain_text("9007199254742225")
    console.page.reload()
    console.page.get_by_label("Value as JSON").wait_for()
    expect(console.page.get_by_label("Filter messages")).to_have_value(re.compile("2225$"))


def test_a_filter_that_cannot_be_read_says_where(console: Console, client: httpx.Client) -> None:
    """A mistake is named with its place, and nothing is read."""
    fill(client, "events", [{"value": 1}])
    console.open("topics/events/messages?filter=valeu.id+%3D+1")
    console.text("is not a field").wait_for()


def test_newest_come_first_and_a_long_list_goes_on(console: Console, client: httpx.Client) -> None:
    """The last record is on top; scrolling down reads older ones, down to the first."""
    records = [{"value": n, "timestamp": START_MS + n} for n in range(900)]
    fill(client, "events", records, partitions=2)
    console.open("topics/events")
    first = console.rows("Messages").first
    first.wait_for()
    expect(first).to_have_text(re.compile(r"\n899\n.*$"), use_inner_text=True)
    scroller = console.page.get_by_role("list", name="Messages")
    console.page.wait_for_function(
        "list => { list.scrollTop = list.scrollHeight;"
        " return document.body.innerText.includes('all read'); }",
        arg=scroller.element_handle(),
    )
    last = console.rows("Messages").last
    expect(last).to_have_text(re.compile(r"\n0(\n|$)"), use_inner_text=True)


def test_texts_at_every_boundary_are_listed_and_downloaded(
    console: Console, client: httpx.Client
) -> None:
    """Each has a row that opens, and a line of the download that a lenient reader takes whole."""
    fill(client, "texts", ({"key": text, "value": text} for text in TEXTS.values()))
    console.open("topics/texts/messages?from=earliest")
    console.rows("Messages").nth(len(TEXTS) - 1).wait_for()
    for row in console.rows("Messages").all():
        row.click()
        console.page.get_by_label("Value as").first.wait_for()
    with console.page.expect_download() as download:
        download_all(console)
    lines = Path(download.value.path()).read_text().splitlines()
    found = [(one["key"], json.loads(one["value"])) for one in map(json.loads, lines)]
    assert sorted(found) == sorted((text, text) for text in TEXTS.values())


def test_offsets_beyond_two_to_the_53_are_exact(browser: Browser, tmp_path: Path) -> None:
    """A log that starts there is listed, opened by its link, and linked to, digit by digit."""
    directory = tmp_path / "data" / "far-0"
    directory.mkdir(parents=True)
    records = [(START_MS, b"key", b"%d" % n, ()) for n in range(3)]
    batch = build_batch(records, base_offset=FAR, leader_epoch=0)
    (directory / f"{FAR:020}.log").write_bytes(batch)
    with serving(tmp_path / "data") as served, browsing(browser, served.url) as console:
        console.open("topics/far/messages?from=earliest")
        console.text(str(FAR + 2)).wait_for()
        expect(console.rows("Messages")).to_contain_text([str(FAR + n) for n in range(3)])
        console.open(f"topics/far/messages?from=offset&at={FAR + 1}&partition=0&open=0/{FAR + 1}")
        console.text("Offset 9,007,199,254,740,994").wait_for()
        expect(console.rows("Messages")).to_have_count(2)
        console.open("topics/far/partitions")
        console.text("9,007,199,254,740,993").wait_for()
        console.text("9,007,199,254,740,996").wait_for()


def test_a_live_tail_pauses_and_stays_bounded(console: Console, client: httpx.Client) -> None:
    """While it is paused the list stands still; afterwards it has what came, at most its bound."""
    client.put("/v1/topics/events", json={"partitions": 4})
    console.open("topics/events/messages?from=live")
    console.text("Waiting for the next record").wait_for()
    fill(client, "events", [{"value": "before"}])
    console.text("before").wait_for()
    console.button("Pause").click()
    for n in range(6):
        fill(client, "events", [{"value": f"v{n}"}] * 2000)
    console.text("12,001 received").wait_for()
    expect(console.rows("Messages")).to_have_count(1)
    console.button("Resume").click()
    console.text("the newest 5,000 are kept").wait_for()
    in_sight = console.rows("Messages")
    in_sight.nth(1).wait_for()
    assert in_sight.count() < 200


def test_bytes_that_are_no_text_are_shown_as_such(console: Console, client: httpx.Client) -> None:
    """Binary as a hex dump, a tombstone and a missing key in words."""
    record = {"value": "AAECAwT/", "value_encoding": "base64"}
    fill(client, "events", [record, {"key": "gone", "value": None}])
    console.open("topics/events/messages?from=earliest&open=0/0")
    dump = console.page.get_by_label("Value as Hex")
    dump.wait_for()
    expect(dump).to_have_text(re.compile("^00000000  00 01 02 03 04 ff"), use_inner_text=True)
    console.button("Base64").click()
    expect(console.page.get_by_label("Value as Base64")).to_have_text("AAECAwT/")
    console.text("No key.").wait_for()
    console.rows("Messages").nth(1).click()
    console.text("Tombstone: no value.").wait_for()


def test_marks_that_turn_text_around_are_shown(console: Console, client: httpx.Client) -> None:
    """A key does not read as another name; in the list and in the record's own view."""
    name = "\u202egnp.exe\u2066\x9b"
    fill(client, "events", [{"key": name, "value": name, "value_encoding": "utf8"}])
    console.open("topics/events/messages")
    console.rows("Messages").first.click()
    console.page.get_by_label("Value as").first.wait_for()
    shown = console.page.locator("body").inner_text()
    assert r"\u202egnp.exe\u2066\u009b" in shown
    assert not set(shown) & set(name) & set("\u202e\u2066\x9b")


def test_what_was_found_is_downloaded_and_replayed(console: Console, client: httpx.Client) -> None:
    """The download can be appended as it is; a replay has the same keys, values and headers."""
    headers = [{"key": "trace", "value": "4bf9"}]
    fill(client, "events", [{"key": "k", "value": {"n": 1.10}, "headers": headers}])
    fill(client, "events", [{"key": "l", "value": "/wA=", "value_encoding": "base64"}])
    client.put("/v1/topics/copy", json={})
    console.open("topics/events/messages?from=earliest")
    console.rows("Messages").nth(1).wait_for()
    with console.page.expect_download() as download:
        download_all(console)
    lines = Path(download.value.path()).read_text().splitlines()
    assert json.loads(lines[0])["value"] == '{"n":1.1}'
    assert json.loads(lines[1])["value_encoding"] == "base64"
    console.button("Replay to a topic").first.click()
    console.page.get_by_label("To topic").fill("copy")
    console.button("Append").click()
    console.text("2 appended to").wait_for()
    read = "/v1/topics/{}/partitions/0/records?encoding=base64"
    members = ("key", "value", "headers")
    copied, original = (
        [
            [record[one] for one in members]
            for record in client.get(read.format(topic)).json()["records"]
        ]
        for topic in ("copy", "events")
    )
    assert copied == original


def aborted(client: httpx.Client, action: str | None, sequence: int = 0) -> None:
    """Two records of a transaction that ends so, or stays open."""
    identity: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    batch = new_batch(2, base_sequence=sequence, is_transactional=True, **identity)
    log = "/v1/topics/events/partitions/0"
    client.post(f"{log}/batches", content=bytes(batch), headers=RAW).raise_for_status()
    if action:
        body = {**identity, "action": action}
        client.post(f"{log}/transactions", json=body).raise_for_status()


@pytest.mark.parametrize("partitions", [1, 25])
@pytest.mark.parametrize("query", ["", "from=earliest", "filter=offset+%3E+0"])
def test_what_no_transaction_committed_is_told(
    console: Console, client: httpx.Client, query: str, partitions: int
) -> None:
    """Aborted and open records carry a tag, in one of many partitions, too; a choice hides them."""
    fill(client, "events", [{"value": "plain"}], partitions)
    aborted(client, "abort")
    aborted(client, "commit", 2)
    aborted(client, None, 4)
    console.open(f"topics/events/messages?{query}")
    rows = console.rows("Messages")
    rows.nth(5 if "offset" in query else 6).wait_for()
    expected = [*[["not committed yet"]] * 2, *[[]] * 2, *[["aborted"]] * 2, []]
    if "earliest" in query:
        expected.reverse()
    for row, tags in enumerate(expected[: rows.count()]):
        expect(rows.nth(row).locator(".tag")).to_have_text(tags)
    console.page.get_by_label("Transactions").select_option("read_committed")
    console.text("all read").wait_for()
    expect(console.page).to_have_url(re.compile(re.escape("isolation=read_committed")))
    expect(rows.locator(".tag")).to_have_count(0)
    expect(rows).to_have_count(2 if "offset" in query else 3)


@pytest.mark.parametrize("query", ["", "from=earliest", "filter=value+~+v"])
def test_a_search_goes_on_behind_damage(
    console: Console, client: httpx.Client, tmp_path: Path, query: str
) -> None:
    """The damaged batch is passed over and named, with a link to its place in the log."""
    for number in range(9):
        fill(client, "events", [{"value": f"v{number}{part}"} for part in range(3)])
    (file,) = (tmp_path / "data" / "events-0").glob("*.log")
    content = bytearray(file.read_bytes())
    content[4 * len(content) // 9 + 70] ^= 1
    with file.open("r+b") as log:
        log.write(content)
    console.open(f"topics/events/messages?{query}")
    notice = console.page.get_by_role("alert", name="Not read")
    notice.get_by_text("offsets 12 to 14").wait_for()
    console.text("all read").wait_for()
    shown = "".join(console.rows("Messages").all_inner_texts())
    assert [f"v{n}0" in shown for n in range(9)] == [n != 4 for n in range(9)]
    console.errors.clear()  # the browser reports each 500
    notice.get_by_role("link").click()
    damaged = console.page.get_by_label("Picture of the log").locator(".damaged")
    damaged.first.wait_for()
    console.page.goto("about:blank")  # it asks no more
    console.errors.clear()  # as above


def test_large_values_come_by_their_bytes(console: Console, client: httpx.Client) -> None:
    """The newest of a hundred values of 850 KB is there after a few of them."""
    text = "x" * 850_000
    client.put("/v1/topics/large", json={"config": {"max.message.bytes": 900_000}})
    for _ in range(100):
        fill(client, "large", [{"value": text}])
    sizes: list[int] = []
    console.page.on(
        "response",
        lambda answer: sizes.append(int(answer.headers.get("content-length", 0))),
    )
    console.open("topics/large")
    console.rows("Messages").first.wait_for()
    assert sum(sizes) < 4_000_000


def test_many_partitions_take_few_requests(console: Console, client: httpx.Client) -> None:
    """Three hundred of them are read a hundred at a time."""
    client.put("/v1/topics/wide", json={"partitions": 300}).raise_for_status()
    for partition in range(300):
        path = f"/v1/topics/wide/partitions/{partition}/records"
        client.post(path, json={"records": [{"value": partition}]}).raise_for_status()
    asked: list[str] = []
    console.page.on("request", lambda request: asked.append(request.url))
    console.open("topics/wide")
    console.rows("Messages").nth(10).wait_for()
    assert len([url for url in asked if "/v1/" in url]) < 30


def test_only_what_a_filter_wants_is_sent(console: Console, client: httpx.Client) -> None:
    """The service compares members, headers and times; a time is where the read starts."""
    old = [{"value": {"n": n}, "timestamp": START_MS + n} for n in range(5000)]
    fill(client, "events", old)
    fill(client, "events", [{"key": "new", "value": {"n": -1, "größe": 5}}])
    bodies: list[str] = []
    console.page.on("request", lambda request: bodies.append(request.post_data or ""))
    console.open("topics/events/messages?from=earliest&filter=time+%3E+-10min")
    console.text("all read").wait_for()
    expect(console.rows("Messages")).to_have_count(1)
    console.text("scanned 1 of 1 records").wait_for()
    console.page.get_by_label("Filter messages").fill("value.größe = 5")
    console.button("Search").click()
    console.text("1 found").wait_for()
    assert any("gr\u00f6\u00dfe" in body or "größe" in body for body in bodies)
    console.page.get_by_label("Filter messages").fill("value.n = 4321")
    console.button("Search").click()
    console.text("1 found").wait_for()
    console.text("all read").wait_for()
