"""What real senders sent, sent again: each of their requests becomes the records it should."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.docs.page_shell import PageShell
from tests.docs.sender_pages import steps_of
from tests.docs.snippets import Snippet
from tests.support.captures import Stored, captures, replay, stored_names
from tests.support.server import serving
from tests.support.time import ManualClock

CLOCK = ManualClock()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of one service for all; its clock is set to the time of each signature."""
    folder = tmp_path_factory.mktemp("data")
    with serving(folder, clock=CLOCK) as served, httpx.Client(base_url=served.url) as client:
        yield client


@contextmanager
def topic_of(page: str, topic: str, client: httpx.Client, folder: Path) -> Iterator[None]:
    """Run the first block of the page, which sets up the topic; delete the topic in the end."""
    first = next(steps_of(page, str(client.base_url)))
    assert isinstance(first, Snippet)
    PageShell(folder).run(first.code)
    try:
        yield
    finally:
        client.delete(f"/v1/topics/{topic}").raise_for_status()


def stored_in(client: httpx.Client, topic: str) -> list[Stored]:
    """Read all records of a topic, byte for byte."""
    page = client.get(f"/v1/topics/{topic}/records", params={"encoding": "base64"}).json()
    return [stored(record) for partition in page["partitions"] for record in partition["records"]]


def stored(record: dict[str, Any]) -> Stored:
    key = None if record["key"] is None else base64.b64decode(record["key"]).decode()
    pairs = {item["key"]: base64.b64decode(item["value"]) for item in record["headers"]}
    headers = {
        name: value.decode() for name, value in pairs.items() if not name.startswith("tidelog-")
    }
    return Stored(key, base64.b64decode(record["value"]), headers)


@pytest.mark.parametrize("name", captures())
def test_a_captured_request_becomes_its_records(
    name: str, client: httpx.Client, tmp_path: Path
) -> None:
    """Value byte for byte, key and headers, with the profile of the sender's page."""
    capture = captures()[name]
    CLOCK.set_wall(capture.sent_ms)
    with topic_of(capture.page, capture.topic, client, tmp_path):
        answer = replay(capture, str(client.base_url))
        assert answer.status_code == 200, answer.text
        assert capture.answer is None or answer.text == capture.answer
        assert stored_in(client, capture.topic) == capture.expected()


@pytest.mark.parametrize("name", [name for name, one in captures().items() if one.expected()])
def test_a_repeated_request_is_stored_once_if_the_sender_has_a_delivery_id(
    name: str, client: httpx.Client, tmp_path: Path
) -> None:
    """The second answer has the first offset; other senders are stored twice, as pages say."""
    capture = captures()[name]
    CLOCK.set_wall(capture.sent_ms)
    with topic_of(capture.page, capture.topic, client, tmp_path):
        first, second = (replay(capture, str(client.base_url)) for _ in range(2))
        assert second.status_code == 200, second.text
        times = 1 if capture.has_delivery_id else 2
        assert stored_in(client, capture.topic) == capture.expected() * times
    if capture.has_delivery_id:
        assert second.json()["offset"] == first.json()["offset"]


def test_every_capture_names_its_source() -> None:
    """The bytes of a request are evidence only if one knows whose they are."""
    assert set(captures()) == stored_names()
    for capture in captures().values():
        assert capture.program
        assert capture.source
