"""Each page: accessible, under its policy, at its own address, and light."""

import gzip
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.console.files import DIRECTORY
from tests.support.browser import Console

pytestmark = pytest.mark.needs("chromium", "console")

LONG = "payments-eu-west-1.ledger.entries.v2.compacted-by-account-and-currency-of-settlement"
PAGES = [
    "",
    "topics",
    "topics?create=1",
    "topics?q=nothing",
    f"topics/{LONG}/messages?open=0/0&from=earliest",
    f"topics/{LONG}/messages?filter=key+%3D+nothing",
    f"topics/{LONG}/messages?filter=what%3F",
    "topics/empty/messages",
    "topics/empty/messages?from=live",
    f"topics/{LONG}/partitions",
    f"topics/{LONG}/configuration",
    f"topics/{LONG}/produce",
    f"topics/{LONG}/log",
    f"topics/{LONG}/log?axis=bytes&offset=0",
    "topics/empty/log",
    f"topics/{LONG}/ingest",
    "groups",
    "groups/dashboards%2Fof-everybody",
    "subscriptions",
    "subscriptions/mirror",
    "service",
    "service/keys",
    "service/settings?q=tail",
    "service/limits",
    "topics/absent",
    "nowhere/at/all",
]


@pytest.fixture(autouse=True)
def topics(client: httpx.Client) -> None:
    """A topic with a record, whose name is long, and one without any."""
    client.put(f"/v1/topics/{LONG}", json={"partitions": 2}).raise_for_status()
    client.put("/v1/topics/empty", json={}).raise_for_status()
    record = {"key": "k", "value": {"a": [1, "two", None, {"b": True}]}}
    path = f"/v1/topics/{LONG}/partitions/0/records"
    client.post(path, json={"records": [record]}).raise_for_status()
    cursor = f"/v1/groups/dashboards%2Fof-everybody/offsets/{LONG}/0"
    client.put(cursor, json={"offset": 0}).raise_for_status()
    body = {"topics": [LONG], "url": "https://8.8.8.8/hook", "paused": True, "filter": "offset > 1"}
    client.put("/v1/subscriptions/mirror", json=body).raise_for_status()


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "dark"), pytest.param(360, "light", marks=pytest.mark.long)]
)
def test_axe_finds_nothing_on_any_page(console: Console, width: int, scheme: Any) -> None:
    """WCAG 2.2 AA by axe, and nothing wider than the window, in dark and light."""
    console.page.set_viewport_size({"width": width, "height": 800})
    console.page.emulate_media(color_scheme=scheme)
    faults = {}
    for path in PAGES:
        console.page.goto(f"{console.url}/console/{path}")
        console.page.wait_for_load_state("networkidle" if "live" not in path else "load")
        faults[path] = console.faults()
    console.errors[:] = [one for one in console.errors if "404" not in one]  # the absent topic
    assert {path: found for path, found in faults.items() if found} == {}


def shown(console: Console, path: str) -> tuple[str, str]:
    """Return the heading and the address once the page has what it asked for."""
    console.page.wait_for_load_state("networkidle" if "live" not in path else "load")
    heading = console.page.locator("main h1, main h2").first
    heading.wait_for()
    return heading.inner_text(), console.page.url


@pytest.mark.long
def test_every_address_can_be_reloaded(console: Console) -> None:
    """A reload shows what it showed; what is in the address stays there."""
    for path in PAGES:
        console.page.goto(f"{console.url}/console/{path}")
        before = shown(console, path)
        console.page.reload()
        assert shown(console, path) == before
    console.errors[:] = [one for one in console.errors if "404" not in one]  # the absent topic


def test_the_policy_is_enforced(console: Console) -> None:
    """An inline script, eval and HTML from text are refused by the browser."""
    console.open()
    refusals = console.page.evaluate(
        """() => {
            const told = [];
            const tell = event => told.push(event.effectiveDirective);
            document.addEventListener("securitypolicyviolation", tell);
            const script = document.createElement("script");
            try { script.textContent = "window.ran = 1"; } catch { told.push("script text"); }
            document.body.append(script);
            try { document.body.innerHTML = "<b>text</b>"; } catch { told.push("innerHTML"); }
            const frame = document.createElement("img");
            frame.src = "https://elsewhere.invalid/x.png";
            document.body.append(frame);
            return new Promise(done => setTimeout(() => done([told, window.ran]), 200));
        }"""
    )
    assert refusals[1] is None
    assert {"script text", "innerHTML", "img-src"} <= set(refusals[0])
    assert console.errors
    console.errors.clear()


def scripts_of(name: str) -> set[Path]:
    """A script with all that it cannot begin without."""
    (path,) = DIRECTORY.glob(f"assets/{name}-*.js")
    found, left = {path}, [path]
    while left:
        text = left.pop().read_text()
        named = {path.parent / one for one in re.findall(r'(?:from|import)\s*"\./([^"]+)"', text)}
        left += named - found
        found |= named
    return found


@pytest.mark.parametrize("name", ["index", "topic", "log", "group", "service", "ingest"])
@pytest.mark.needs("console")
def test_every_page_is_light(name: str) -> None:
    """At most 90 KB gzipped with its styles; 130 KB all pages, 25 KB more to decode values."""
    styles = set(DIRECTORY.glob("assets/*.css"))
    sizes = {path: path.with_suffix(f"{path.suffix}.gz").stat().st_size for path in styles}
    for one in scripts_of("index") | scripts_of(name):
        sizes[one] = one.with_suffix(".js.gz").stat().st_size
    assert sum(sizes.values()) <= 90 * 1000, sizes
    (decoder,) = DIRECTORY.glob("assets/decoder-*.js.gz")
    assert decoder.stat().st_size <= 25 * 1000
    fetched = sum(path.stat().st_size for path in DIRECTORY.rglob("*.gz") if path != decoder)
    assert fetched <= 130 * 1000


def test_a_page_asks_only_its_own_service(console: Console) -> None:
    """And what is compressed beside each file is that file."""
    asked: list[str] = []
    console.page.on("request", lambda request: asked.append(request.url))
    console.open()
    assert all(url.startswith(console.url) for url in asked)
    for path in DIRECTORY.rglob("*.gz"):
        assert gzip.decompress(path.read_bytes()) == path.with_suffix("").read_bytes()
