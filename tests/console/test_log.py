"""The log as a picture: it shows what lies on disk, and announces what then happens."""

import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.browser import Console

pytestmark = pytest.mark.needs("chromium", "console")

LOG = "/v1/topics/events/partitions/0"
RECORDS = 12


@pytest.fixture(autouse=True)
def events(client: httpx.Client) -> None:
    """A topic of several segments, each of a few batches."""
    config = {"segment.bytes": 400, "index.interval.bytes": 0, "retention.ms": -1}
    client.put("/v1/topics/events", json={"config": config}).raise_for_status()
    for number in range(RECORDS):
        body = {"records": [{"key": f"k{number}", "value": "x" * 60}]}
        client.post(f"{LOG}/records", json=body).raise_for_status()


def segments(client: httpx.Client) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = client.get(f"{LOG}/segments").json()["segments"]
    return listed


def drawn(console: Console) -> list[str]:
    """The names of the segments in the picture."""
    picture = console.page.locator(".log-picture")
    picture.get_by_role("button").first.wait_for()
    return [str(one.get_attribute("aria-label")) for one in picture.get_by_role("button").all()]


def test_every_segment_is_drawn_with_its_offsets(console: Console, client: httpx.Client) -> None:
    """The active one last; it grows while the person looks."""
    console.open("topics/events/log")
    listed = segments(client)
    assert len(listed) > 2
    names = drawn(console)
    assert len(names) == len(listed)
    for name, one in zip(names, listed, strict=True):
        last = one["next_offset"] - 1
        assert f"egment {one['base_offset']}, offsets {one['base_offset']} to {last}" in name
    assert names[-1].startswith("Active segment")
    body = {"records": [{"value": 1}]}
    client.post(f"{LOG}/records", json=body).raise_for_status()
    console.page.locator(".mark").get_by_text("13", exact=True).wait_for()


def test_a_read_is_explained_as_the_path_that_it_takes(
    console: Console, client: httpx.Client
) -> None:
    """Segment, index entry, scan and batch, as `explain` of the API says; the address keeps it."""
    console.open("topics/events/log")
    console.page.get_by_label("Explain a read from").fill("7")
    console.button("Explain").click()
    answer = client.get(f"{LOG}/batches?offset=7&max_bytes=1&explain=true")
    facts = dict(one.split("=") for one in answer.headers["log-explain"].split("; "))
    base = facts["segment_base_offset"]
    console.text(f"greatest base offset at or below 7 begins at {base}.").wait_for()
    console.text("holds offset 7").wait_for()
    expect(console.page.locator(".strip .path")).to_be_visible()
    expect(console.page).to_have_url(re.compile(re.escape("offset=7")))
    console.page.reload()
    console.text("holds offset 7").wait_for()
    console.page.get_by_label("Explain a read from").fill("999")
    console.button("Explain").click()
    console.text("Type an offset from 0 to 12").wait_for()


def test_retention_is_shaded_before_anything_is_removed(
    console: Console, client: httpx.Client
) -> None:
    """The dry run shades the segments that then go."""
    client.patch("/v1/topics/events", json={"config": {"retention.bytes": 500}}).raise_for_status()
    due = client.post(f"{LOG}/retention?dry_run=true").json()["removed"]
    before = len(segments(client))
    console.open("topics/events/log")
    console.button("Retention…").click()
    console.button("Show what would be removed").click()
    console.text(f"{len(due)} segments of").wait_for()
    expect(console.page.locator(".shade.removed")).to_have_count(len(due))
    assert len(segments(client)) == before
    console.button("Remove them now").click()
    console.page.get_by_role("dialog").wait_for(state="hidden")
    assert len(segments(client)) == before - len(due)


def test_what_a_deletion_and_a_truncation_give_up_is_told_before(
    console: Console, client: httpx.Client
) -> None:
    """Offsets, segments and bytes; a truncation also asks for the topic's name."""
    console.open("topics/events/log")
    console.button("Delete records…").click()
    console.page.get_by_label("Delete what is below offset").fill("5")
    console.text("5 offsets are given up.").wait_for()
    expect(console.button("Delete them")).to_be_disabled()  # the same ceremony for the same loss
    console.page.get_by_label("Type the topic's name").fill("events")
    console.button("Delete them").click()
    console.page.get_by_role("dialog").wait_for(state="hidden")
    assert client.get(f"{LOG}/offsets").json()["log_start_offset"] == 5
    console.button("Truncate…").click()
    console.page.get_by_label("New log end").fill("9")
    console.text("3 offsets are given up.").wait_for()
    expect(console.button("Truncate")).to_be_disabled()
    console.page.get_by_label("Type the topic's name").fill("events")
    console.button("Truncate").click()
    console.page.get_by_role("dialog").wait_for(state="hidden")
    assert client.get(f"{LOG}/offsets").json()["log_end_offset"] == 9


def test_rolling_opens_a_segment_at_the_log_end(console: Console, client: httpx.Client) -> None:
    """What was announced is what the list of segments then has."""
    console.open("topics/events/log")
    console.button("Roll…").click()
    console.text("A new active segment begins at offset 12.").wait_for()
    console.button("Roll").click()
    console.page.get_by_role("dialog").wait_for(state="hidden")
    assert segments(client)[-1]["base_offset"] == RECORDS
    console.button("Flush…").click()
    console.button("Flush").click()
    console.page.get_by_role("dialog").wait_for(state="hidden")
    assert client.get(LOG).json()["recovery_point"] == RECORDS


def test_compaction_shows_its_range_first(console: Console, client: httpx.Client) -> None:
    """The segments that would be rewritten are shaded, then rewritten."""
    change = {"config": {"cleanup.policy": "compact"}}
    client.patch("/v1/topics/events", json=change).raise_for_status()
    for _ in range(4):
        body = {"records": [{"key": "k0", "value": "y" * 60}]}
        client.post(f"{LOG}/records", json=body).raise_for_status()
    client.post(f"{LOG}/roll").raise_for_status()
    console.open("topics/events/log?axis=bytes")
    console.button("Compaction…").click()
    console.button("Show what would be compacted").click()
    console.text("are compacted for the first time").wait_for()
    expect(console.page.locator(".shade.dirty")).not_to_have_count(0)
    console.button("Compact now").click()
    console.page.get_by_role("dialog").wait_for(state="hidden")
    kept = client.get(f"{LOG}/records").json()["records"]
    assert [record["offset"] for record in kept if record["key"] == "k0"] == [15]


def test_segments_are_chosen_by_keyboard(console: Console) -> None:
    """Arrows move from one to the next, and the strip shows the chosen one."""
    console.open("topics/events/log")
    names = drawn(console)
    console.page.locator(".log-picture [tabindex='0']").focus()
    console.page.keyboard.press("ArrowLeft")
    base = names[-2].split(",")[0].removeprefix("Segment ")
    console.text(f"Inside segment {base}").wait_for()
    expect(console.page).to_have_url(re.compile(re.escape(f"segment={base}")))
