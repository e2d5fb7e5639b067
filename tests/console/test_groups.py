"""Groups: lag in records and in time, and resets that are seen before they are done."""

import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.browser import Console

pytestmark = pytest.mark.needs("chromium", "console")


@pytest.fixture(autouse=True)
def events(client: httpx.Client) -> None:
    """A topic of two partitions with ten records each, and a group with a lag of 6."""
    client.put("/v1/topics/events", json={"partitions": 2}).raise_for_status()
    records = [{"value": number} for number in range(10)]
    for partition, offset in enumerate((4, 10)):
        path = f"/v1/topics/events/partitions/{partition}/records"
        client.post(path, json={"records": records}).raise_for_status()
        cursor = f"/v1/groups/late%2Freader/offsets/events/{partition}"
        client.put(cursor, json={"offset": offset, "metadata": "run 17"}).raise_for_status()


def stored(client: httpx.Client) -> list[int]:
    offsets = client.get("/v1/groups/late%2Freader/offsets").json()["offsets"]
    return [one["offset"] for one in offsets]


def test_the_worst_come_first_on_each_list(console: Console, client: httpx.Client) -> None:
    """On the page of groups, the overview and the topic's page, in records and in time."""
    for name, offset in (("aaa", 10), ("zzz", 0)):
        cursor = f"/v1/groups/{name}/offsets/events/1"
        client.put(cursor, json={"offset": offset}).raise_for_status()
    names = ["zzz", "late/reader", "aaa"]
    console.open("groups")
    rows = console.rows("Groups")
    rows.nth(2).wait_for()
    for row, (name, lag) in enumerate(zip(names, ("10", "6", "0"), strict=True)):
        late = "" if lag == "0" else r"\n\d.* m?s"
        line = re.compile(rf"^{name}\n.*\n{lag}{late}")
        expect(rows.nth(row)).to_have_text(line, use_inner_text=True)
    console.open("")
    behind = console.page.get_by_role("region", name="Groups behind").get_by_role("link")
    behind.nth(3).wait_for()
    expect(behind).to_have_text(["Groups behind", *names])
    console.open("topics/events/partitions")
    console.rows("Groups").nth(2).wait_for()
    expect(console.rows("Groups").get_by_role("link")).to_have_text(names)


def test_a_group_shows_its_lag_in_records_and_in_time(console: Console) -> None:
    """Found in the list by its name, slash and all; partition by partition on its page."""
    console.open("groups")
    console.page.get_by_label("Search groups").fill("LATE")
    console.page.get_by_role("link", name="late/reader").click()
    rows = console.page.locator("tbody tr")
    rows.first.wait_for()
    expect(console.page.locator(".figure").first).to_have_text(re.compile("^Lag\\s*6"))
    behind, done = rows.all()
    expect(behind.locator("td").nth(3)).to_have_text("6")
    expect(behind.locator("td").nth(4)).to_have_text(re.compile(r"^\d.* m?s$"))
    expect(done.locator("td").nth(4)).not_to_have_text(re.compile(r"\d"))
    expect(behind).to_contain_text("run 17")


def test_a_reset_is_previewed_and_then_stored(console: Console, client: httpx.Client) -> None:
    """Each partition says what is read again or skipped; then it is stored."""
    console.open("groups/late%2Freader")
    console.button("Reset…").click()
    console.text("reads 4 offsets again").wait_for()
    console.text("reads 10 offsets again").wait_for()
    console.page.get_by_label("Partitions").select_option("1")
    console.button("Offset", exact=True).click()
    console.page.get_by_label("Offset", exact=True).last.fill("7")
    console.text("reads 3 offsets again").wait_for()
    assert stored(client) == [4, 10]
    console.button("Reset 1 offset").click()
    console.page.get_by_role("dialog").wait_for(state="hidden")
    assert stored(client) == [4, 7]


def test_a_reset_by_time_finds_the_offset(console: Console, client: httpx.Client) -> None:
    """The first record at or after the time; after the last record, the end."""
    console.open("groups/late%2Freader")
    console.button("Reset…").click()
    console.button("Time", exact=True).click()
    console.page.get_by_label("First record at or after").fill("2000-01-01T00:00:00")
    console.text("reads 4 offsets again").wait_for()
    console.page.get_by_label("First record at or after").fill("2100-01-01T00:00:00")
    console.text("skips 6 offsets, nothing is left to read").wait_for()
    console.button("Reset 1 offset").click()
    console.page.get_by_role("dialog").wait_for(state="hidden")
    assert stored(client) == [10, 10]


def test_a_reader_that_runs_is_not_overwritten(console: Console, client: httpx.Client) -> None:
    """If the group has moved since the preview, nothing is stored, and the dialog says why."""
    console.open("groups/late%2Freader")
    console.button("Reset…").click()
    console.text("reads 4 offsets again").wait_for()
    client.put("/v1/groups/late%2Freader/offsets/events/0", json={"offset": 6}).raise_for_status()
    console.button("Reset 2 offsets").click()
    console.text("is at offset 6 now, not at 4").wait_for()
    assert stored(client) == [6, 10]


def test_without_groups_the_page_shows_how_to_begin(console: Console, client: httpx.Client) -> None:
    """The command that stores an offset; the group appears when it has run."""
    client.delete("/v1/topics/events")
    console.page.clock.install()
    console.open("groups")
    console.text("No group has stored an offset").wait_for()
    client.put("/v1/topics/events", json={}).raise_for_status()
    client.put("/v1/groups/my-reader/offsets/events/0", json={"offset": 0}).raise_for_status()
    console.page.clock.fast_forward("00:20")
    console.page.get_by_role("link", name="my-reader").wait_for()


def test_workers_are_shown_with_what_they_hold(console: Console, client: httpx.Client) -> None:
    """Who holds a partition stands beside its lag; one that is to move is counted."""
    for name in ("w-1", "w-2", "w-1"):
        body = {"worker": name, "topics": ["events"]}
        client.post("/v1/groups/late%2Freader/leases", json=body).raise_for_status()
    console.open("groups/late%2Freader")
    workers = console.page.get_by_role("region", name="Workers").locator("tbody tr")
    workers.first.wait_for()
    for row, cells in enumerate([["w-1", "2", "1", "0"], ["w-2", "0", "0", "1"]]):
        for cell, text in enumerate(cells):
            expect(workers.nth(row).locator("td").nth(cell)).to_have_text(text)
    offsets = console.page.get_by_role("region", name="Offsets").locator("tbody tr")
    expect(offsets.filter(has_text="w-1")).to_have_count(2)
