"""The console's files over HTTP: cached, compressed, and only those of the build."""

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from app.api.console import files
from app.operations.service import Service
from app.settings import Settings
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

PAGE = b"<!doctype html><title>page</title>"
SCRIPT = b"console.log(1)"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the service looks for the build; empty."""
    directory = tmp_path / "static"
    directory.mkdir()
    monkeypatch.setattr(files, "DIRECTORY", directory)
    return directory


@pytest.fixture
def built(directory: Path) -> Path:
    """A build of one page and one script, as Vite writes it."""
    (directory / "assets").mkdir()
    for name, content in {"index.html": PAGE, "assets/index-1a2b.js": SCRIPT}.items():
        (directory / name).write_bytes(content)
        (directory / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
        (directory / f"{name}.br").write_bytes(b"br " + content)
    return directory


@pytest.fixture
async def client(tmp_path: Path, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    service = Service(Settings(data_directory=tmp_path / "data"))
    async with wired(service, is_hot=False) as client:
        client.headers["accept-encoding"] = "identity"
        yield client


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("path", ["", "topics/flights", "topics/a%2Fb/messages"])
async def test_a_reload_of_any_page_gets_the_page(client: httpx.AsyncClient, path: str) -> None:
    """What the page routes by itself answers the page, under a policy that runs only its files."""
    answer = await client.get(f"/console/{path}")
    assert (answer.status_code, answer.content) == (200, PAGE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.usefixtures("built")
async def test_no_path_leaves_the_build(client: httpx.AsyncClient) -> None:
    """Dots that reach the service name no file: they are an address of the page's own."""
    answer = await client.get("/console/..%2f..%2f..%2fsettings.py")
    assert answer.content == PAGE


@pytest.mark.usefixtures("built")
async def test_a_hashed_file_is_cached_for_ever(client: httpx.AsyncClient) -> None:
    """Its name changes with its content."""
    answer = await client.get("/console/assets/index-1a2b.js")
    assert answer.content == SCRIPT
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip, deflate, br, zstd", "br"),
        ("gzip;q=0.5", "gzip"),
        ("br;q=0, gzip", "gzip"),
        ("zstd", None),
        ("", None),
    ],
)
async def test_the_best_coding_that_is_accepted_is_sent(
    client: httpx.AsyncClient, accepted: str, coding: str | None
) -> None:
    """As it was compressed when it was built; nothing is compressed for a request."""
    async with client.stream("GET", "/console/", headers={"accept-encoding": accepted}) as answer:
        body = b"".join([part async for part in answer.aiter_raw()])
    assert answer.headers.get("content-encoding") == coding
    assert answer.headers["vary"] == "accept-encoding"
    assert {"br": b"br " + PAGE, "gzip": gzip.compress(PAGE, mtime=0), None: PAGE}[coding] == body


@pytest.mark.usefixtures("built")
async def test_a_page_that_did_not_change_is_not_sent_again(client: httpx.AsyncClient) -> None:
    """304 for the ETag of the same coding only."""
    etag = (await client.get("/console/")).headers["etag"]
    again = await client.get("/console/", headers={"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")
    other = {"if-none-match": etag, "accept-encoding": "br"}
    assert (await client.get("/console/", headers=other)).status_code == 200


@pytest.mark.usefixtures("built")
async def test_a_file_of_another_build_is_not_found(client: httpx.AsyncClient) -> None:
    """The page instead of a script would be read as a script."""
    answer = await client.get("/console/assets/index-0000.js")
    assert answer.status_code == 404
    assert answer.json()["code"] == "route_not_found"


async def test_without_a_build_the_page_says_how_to_make_one(
    client: httpx.AsyncClient, directory: Path
) -> None:
    """The service runs all the same, and serves the console once it is built."""
    answer = await client.get("/console/")
    assert answer.status_code == 404
    assert "make console" in answer.text
    for ending in files.CODINGS.values():
        (directory / f"index.html{ending}").write_bytes(PAGE)
    assert (await client.get("/console/")).content == PAGE


async def test_the_address_without_its_slash_leads_to_the_console(
    client: httpx.AsyncClient,
) -> None:
    """A person may leave the slash out."""
    answer = await client.get("/console")
    assert (answer.status_code, answer.headers["location"]) == (308, "console/")
