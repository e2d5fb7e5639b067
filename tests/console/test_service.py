"""The page of the service: settings and their source, directories, keys, and who may see them."""

import asyncio
import re
import shutil
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Console, browsing
from tests.support.credentials import bearer, create_key
from tests.support.server import Served, serving
from tests.support.service import local
from tests.support.swap import swap

pytestmark = pytest.mark.needs("chromium", "console")

DASH = "\N{EN DASH}"


def test_settings_are_found_with_their_source(console: Console) -> None:
    """What is not the default comes first; a search looks into names and descriptions."""
    console.open("service/settings")
    lines = console.page.get_by_role("list", name="settings").get_by_role("listitem")
    lines.first.wait_for()
    console.page.get_by_label("Only what is not the default").check()
    console.page.get_by_label("Search settings").fill("data directory")
    expect(lines).to_have_count(1)
    expect(lines.first).to_contain_text("command line")
    expect(console.page).to_have_url(re.compile(re.escape("set=1")))


def test_directories_show_their_room(console: Console, client: httpx.Client) -> None:
    """What the logs take, and what is free on the disk."""
    client.put("/v1/topics/events", json={"partitions": 3}).raise_for_status()
    console.open("service")
    console.text("of logs in 3 partitions").wait_for()
    expect(console.page.locator(".meter")).to_have_attribute("aria-label", re.compile("are used"))
    console.text("Search for damage").wait_for()


def test_moves_between_directories_are_listed(browser: Browser, tmp_path: Path) -> None:
    """From where to where, and how far; with one directory there is nothing to move to."""
    more = (tmp_path / "second",)
    with (
        serving(tmp_path / "data", more_data_directories=more) as served,
        browsing(browser, served.url) as console,
        httpx.Client(base_url=served.url) as client,
    ):
        client.put("/v1/topics/events", json={}).raise_for_status()
        console.open("service")
        console.text("None since the start.").wait_for()
        path = "/v1/topics/events/partitions/0/move"
        listed = client.get("/v1/directories").json()["directories"]
        (target,) = (one["path"] for one in listed if one["partitions"] == 0)
        client.post(path, json={"directory": target}).raise_for_status()
        console.page.reload()
        row = console.page.get_by_role("region", name="Moves of partitions").locator("tbody tr")
        row.wait_for()
        expect(row).to_contain_text("events 0")


def test_limits_read_in_their_unit(console: Console) -> None:
    """A number of bytes says how many MiB it is."""
    console.open("service/limits")
    console.page.get_by_label("Search limits").fill("max_request_bytes")
    console.text("16 MiB").wait_for()


def test_keys_are_listed_for_administrators_alone(console: Console, tmp_path: Path) -> None:
    """Names and scopes; a key that only reads sees neither them nor the settings."""
    console.open("service/keys")
    console.text("There are no API keys").wait_for()
    data = tmp_path / "data"
    ops = create_key(data, "ops", "admin:*", "read:*")
    reader = create_key(data, "reader", "read:*")
    dialog = console.page.get_by_role("dialog")
    dialog.wait_for()  # the first key shuts the service
    for key in (ops, reader):
        console.page.get_by_label("Key or token").fill(key)
        console.button("Use it").click()
        dialog.wait_for(state="hidden")
        if key == ops:
            console.text("admin:*").wait_for()
            assert key not in console.page.content()
            console.button("API key in use").click()
    console.text("key:reader").wait_for()
    expect(console.page.get_by_role("link", name="Settings")).to_have_count(0)
    console.errors[:] = [one for one in console.errors if "40" not in one]


def test_a_directory_that_fails_is_red_on_the_first_screen(
    browser: Browser, tmp_path: Path
) -> None:
    """One of two: what, where and what to do; the logs of the other go on."""
    more = (tmp_path / "second",)
    with (
        serving(tmp_path / "data", more_data_directories=more) as served,
        browsing(browser, served.url) as console,
    ):
        console.open("")
        console.text("Nothing needs attention").wait_for()
        _, failed = local(served.service).manager.directories
        failed.fail(OSError(5, "Input/output error"))
        alert = console.page.get_by_role("alert")
        alert.wait_for()
        console.text(f"since a disk failed: {failed.directory}").wait_for()
        expect(alert).to_contain_text("Appends to its logs answer 503")
        alert.get_by_role("link", name="Show the directories").click()
        console.text("of logs in 0 partitions").first.wait_for()


def test_a_directory_that_is_missing_is_told_everywhere(browser: Browser, tmp_path: Path) -> None:
    """At the start: red, with what is offline; what is online has its rows and its records."""
    more = (tmp_path / "second",)
    with (
        serving(tmp_path / "data", more_data_directories=more) as served,
        httpx.Client(base_url=served.url) as client,
    ):
        client.put("/v1/topics/events", json={"partitions": 2}).raise_for_status()
        for number in range(2):
            path = f"/v1/topics/events/partitions/{number}/records"
            client.post(path, json={"records": [{"value": f"v{number}"}]}).raise_for_status()
    shutil.rmtree(tmp_path / "second")
    (tmp_path / "second").write_bytes(b"in its place")
    with (
        serving(tmp_path / "data", more_data_directories=more) as served,
        browsing(browser, served.url) as console,
    ):
        console.open("")
        alert = console.page.get_by_role("alert").first
        alert.get_by_text("events: 1 partition of 2 take no appends").wait_for()
        console.text("without what is offline").wait_for()
        expect(console.page.locator(".figure", has_text="offline:")).to_contain_text(DASH)
        console.open("topics")
        row = console.page.get_by_role("list", name="Topics").get_by_role("listitem")
        row.wait_for()
        expect(row).to_contain_text("1 offline")
        expect(row).not_to_contain_text("0 B")
        row.get_by_role("link").click()
        console.rows("Messages").first.wait_for()
        expect(console.rows("Messages").first).to_contain_text("v0")
        console.page.get_by_role("link", name="Partitions").click()
        console.page.get_by_role("alert").get_by_text("Partition 1 takes no appends").wait_for()
        expect(console.rows("Partitions")).to_have_count(1)
        console.errors.clear()  # the browser reports the 503 of what is offline


def test_damage_is_red_until_it_is_gone(browser: Browser, tmp_path: Path) -> None:
    """With its place, also after a restart; green again when it was mended."""
    with (
        serving(tmp_path / "data") as served,
        httpx.Client(base_url=served.url) as client,
    ):
        client.put("/v1/topics/events", json={}).raise_for_status()
        client.post("/v1/topics/events/ingest", json={"n": 1}).raise_for_status()
        (file,) = (tmp_path / "data" / "events-0").glob("*.log")
        whole = file.read_bytes()
        file.write_bytes(whole[:65] + bytes([whole[65] ^ 1]) + whole[66:])
        client.get("/v1/topics/events/partitions/0/records")
    with (
        serving(tmp_path / "data") as served,
        browsing(browser, served.url) as console,
    ):
        console.open("")
        alert = console.page.get_by_role("alert").first
        alert.get_by_text("events, partition 0 is damaged").wait_for()
        alert.get_by_role("link", name="Show the place").click()
        console.page.locator(".damaged").wait_for()
        file.write_bytes(whole)
        local(served.service).manager.review_damage()
        console.open("")
        console.text("Nothing needs attention").wait_for()
        console.errors.clear()  # the log's page reads what is damaged


def test_the_first_screen_shows_what_a_scraper_would_have(
    console: Console, client: httpx.Client, served: Served
) -> None:
    """Charts of the time before it was opened, and sums of all topics, not of a page."""
    for number in range(1_003):
        client.put(f"/v1/topics/t{number:04}", json={}).raise_for_status()
    client.post("/v1/topics/t1002/ingest", json={"n": "x" * 1000}).raise_for_status()
    asyncio.run_coroutine_threadsafe(looked(served, 30), loop_of(served)).result(30)
    asked: list[str] = []
    console.page.on("request", lambda request: asked.append(request.url))
    console.open("")
    console.page.get_by_role("region", name="Topics by their bytes").get_by_text("t1002").wait_for()
    partitions = console.page.locator(".figure", has_text="Partitions").locator("b")
    partitions.get_by_text("1,003").wait_for()
    console.page.get_by_role("region", name="Arrived last").get_by_text("t1002").wait_for()
    chart = console.page.get_by_role("img", name="Appends a second")
    chart.wait_for()
    expect(chart).to_have_attribute("aria-label", re.compile(re.escape("now records")))
    assert not any("/metrics" in url for url in asked)


def loop_of(served: Served) -> asyncio.AbstractEventLoop:
    """The loop on which the service runs."""
    loop = served.service._loop  # noqa: SLF001  # the service keeps it for signals alone
    assert loop is not None
    return loop


async def looked(served: Served, times: int) -> None:
    """So many intervals of the history pass."""
    for _ in range(times):
        served.service.history.look()


def test_health_is_unknown_without_the_metrics_scope(browser: Browser, tmp_path: Path) -> None:
    """Without the scope `metrics`: no green line and no zeros, but a failed disk is told."""
    reader = create_key(tmp_path / "data", "reader", "read:*", "admin:*")
    with serving(tmp_path / "data", more_data_directories=(tmp_path / "second",)) as served:
        httpx.put(f"{served.url}/v1/topics/events", json={}, headers=bearer(reader))
        with browsing(browser, served.url) as console:
            console.open("topics")
            console.page.get_by_label("Key or token").fill(reader)
            console.button("Use it").click()
            console.page.get_by_role("link", name="events").wait_for()
            row = console.page.get_by_role("list", name="Topics").get_by_role("listitem")
            shown = f"events\\s*7 d\\s*1\\s*{DASH}\\s*0 B\\s*{DASH}"
            expect(row).to_have_text(re.compile(rf"^\s*{shown}\s*$"))
            console.page.get_by_role("link", name="Overview").click()
            console.text("are not known without the scope metrics").wait_for()
            expect(console.text("Nothing needs attention")).to_have_count(0)
            local(served.service).manager.directories[1].fail(OSError(5, "Input/output error"))
            console.text("A data directory takes no more writes").wait_for()
            console.errors.clear()  # the browser reports 401 and 403


def test_an_archive_is_shown_and_its_failure_is_the_first_thing_seen(
    browser: Browser, tmp_path: Path
) -> None:
    """The log says how far it is archived; the overview what is wrong with the bucket."""
    bucket = tmp_path / "bucket"
    with (
        serving(tmp_path / "data", archive=f"file://{bucket}", archive_interval_ms=10) as served,
        browsing(browser, served.url) as console,
        httpx.Client(base_url=served.url) as client,
    ):
        client.put("/v1/topics/events", json={}).raise_for_status()
        client.post("/v1/topics/events/ingest", json={"n": 1}).raise_for_status()
        while client.get("/readyz").json()["archive"]["lag_ms"]:
            pass  # the archiver has a thread of its own
        console.open("topics/events/log")
        console.text("Archived up to").wait_for()
        console.text("everything committed").wait_for()
        log = "/v1/topics/events/partitions/0"
        client.post(f"{log}/roll").raise_for_status()
        tiered = {"remote.storage.enable": True, "local.retention.bytes": 0}
        client.patch("/v1/topics/events", json={"config": tiered}).raise_for_status()
        console.text("in the archive only").first.wait_for()
        console.text("On the disk from").wait_for()
        (tmp_path / "file").write_bytes(b"in its place")
        swap(bucket, tmp_path / "file")
        client.post("/v1/topics/events/ingest", json={"n": 2}).raise_for_status()
        console.open("")
        alert = console.page.get_by_role("alert")
        alert.get_by_text(f"The archive file://{bucket} cannot be written").wait_for()
