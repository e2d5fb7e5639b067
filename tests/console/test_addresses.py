"""Links, the Back button and copied commands mean what the page shows."""

import re
import subprocess
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.browser import Console, browsing

pytestmark = pytest.mark.needs("chromium", "console")

RECORDS = "/v1/topics/events/partitions/{}/records"


@pytest.fixture(autouse=True)
def events(client: httpx.Client) -> None:
    """Two partitions of thirty records, a group at the fifth, an ingest profile."""
    client.put("/v1/topics/events", json={"partitions": 2}).raise_for_status()
    for partition in range(2):
        records = [{"key": f"k{n}", "value": {"n": n}} for n in range(30)]
        path = RECORDS.format(partition)
        client.post(path, json={"records": records}).raise_for_status()
    cursor = "/v1/groups/late/offsets/events/1"
    client.put(cursor, json={"offset": 4}).raise_for_status()


@pytest.fixture
def copying(browser: object, served: object) -> Iterator[Console]:
    """A window whose clipboard can be read."""
    options = {"permissions": ["clipboard-read", "clipboard-write"]}
    with browsing(browser, served.url, **options) as console:  # type: ignore[arg-type,attr-defined]  # fixtures of conftest
        yield console


def first_offset(console: Console, partition: str = "1") -> str:
    """The first row's offset; its partition is the given one."""
    row = console.rows("Messages").first
    row.wait_for()
    _, shown, offset, *_ = row.inner_text().split("\n")
    assert shown == partition
    return offset


def test_links_to_an_offset_open_it(console: Console, client: httpx.Client) -> None:
    """From a group's cursor, an explained read, a delivery, and a receipt of either kind."""
    console.open("groups/late")
    console.page.get_by_role("link", name="Read partition 1 from offset 4").click()
    assert first_offset(console) == "4"

    console.open("topics/events/log?partition=1&offset=7")
    console.page.get_by_role("link", name="Read from there").click()
    assert first_offset(console) == "7"

    client.post("/v1/topics/events/ingest", json={"n": 99}).raise_for_status()
    console.open("topics/events/ingest")
    deliveries = console.page.get_by_role("region", name="Deliveries")
    deliveries.get_by_role("link", name="30").click()
    console.page.get_by_label("Message", exact=True).get_by_text("Offset 30").wait_for()

    console.open("topics/events/ingest")
    console.button("Send").click()
    receipt = console.page.get_by_role("link", name=re.compile("^partition "))
    receipt.wait_for()
    partition, _, offset = receipt.inner_text().removeprefix("partition ").partition(", offset ")
    receipt.click()
    assert first_offset(console, partition) == offset


def test_back_shows_what_was_applied(console: Console) -> None:
    """The filter, the place and the partition are those of the address, box and list alike."""
    console.open("topics/events/messages?from=earliest")
    box = console.page.get_by_label("Filter messages")
    box.fill("key = k3")
    console.button("Search").click()
    console.text("all read").wait_for()
    expect(console.rows("Messages")).to_have_count(2)
    console.page.get_by_label("Partition").select_option("1")
    console.text("1 found").wait_for()
    console.page.go_back()
    console.text("2 found").wait_for()
    expect(box).to_have_value("key = k3")
    console.page.go_back()
    console.text("scanned 60 of 60").wait_for()
    expect(box).to_have_value("")
    console.page.go_forward()
    console.text("2 found").wait_for()
    expect(box).to_have_value("key = k3")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("partition=1", ["k29", "k0", "k15"]),
        ("from=earliest&partition=0", ["k0", "k29", "k7"]),
        ("from=offset&at=20&partition=0", ["k20", "k29"]),
        ("filter=key+%3D+k3&partition=0", ["k3"]),
        ("filter=value.n+%3E+27", ["k28", "k29"]),
        ("from=offset&at=28", ["k28", "k29"]),
    ],
)
def test_the_copied_command_reads_what_is_shown(
    copying: Console, query: str, expected: list[str]
) -> None:
    """*Newest* copies a command of the newest, with the filter; a shell that runs it gets them."""
    copying.open(f"topics/events/messages?{query}")
    copying.rows("Messages").first.wait_for()
    copying.button("Copy as curl").click()
    copying.text("Copied").wait_for()
    command = copying.page.evaluate("navigator.clipboard.readText()")
    answers = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    assert all(f'"key":"{key}"' in answers for key in expected)
    left_out = {"k2", "k27"} if "filter" in query or "at=28" in query else set()
    assert not any(f'"key":"{key}"' in answers for key in left_out)


def test_a_command_says_what_only_the_page_compares(copying: Console) -> None:
    """What the service's grammar cannot say stands in a comment beside the command."""
    copying.open("topics/events/messages?filter=key+~+k3+partition+%3D+1")
    copying.rows("Messages").first.wait_for()
    copying.button("Copy as curl").click()
    copying.text("Copied").wait_for()
    command = copying.page.evaluate("navigator.clipboard.readText()")
    assert command.startswith("# The console passes over more than this, by: key ~ k3")
    assert "/partitions/1/records?last=100" in command
    copying.open("topics/events/messages?from=live&filter=key+%3D+k3")
    copying.text("Live").wait_for()
    copying.button("Copy as curl").click()
    copying.text("Copied").wait_for()
    command = copying.page.evaluate("navigator.clipboard.readText()")
    assert command.startswith("curl -N ")
    assert "tail?offset=latest&filter=" in command


PAGES = [
    "",
    "topics",
    "topics/events/messages?from=earliest&open=0/0",
    "topics/events/partitions",
    "topics/events/log?offset=3",
    "topics/events/configuration",
    "topics/events/produce",
    "topics/events/ingest",
    "groups",
    "groups/late",
    "service",
    "service/settings",
    "nowhere",
]


def test_each_link_of_each_page_leads_somewhere(console: Console) -> None:
    """Within the console to a page that has what it names, elsewhere to a good answer."""
    seen: set[str] = set()
    for path in PAGES:
        console.page.goto(f"{console.url}/console/{path}")
        console.page.wait_for_load_state("networkidle")
        links = console.page.locator("a[href]:visible")
        for url in links.evaluate_all("all => all.map(one => one.href)"):
            if url in seen or url.endswith("#main"):
                continue
            seen.add(url)
            if "/console/" not in url:
                assert httpx.get(url, follow_redirects=True).status_code == 200, url
                continue
            console.page.goto(url)
            console.page.wait_for_load_state("networkidle")
            expect(console.text("There is no such page")).to_have_count(0)
            expect(console.page.locator(".failure")).to_have_count(0)
    assert len(seen) > 20
