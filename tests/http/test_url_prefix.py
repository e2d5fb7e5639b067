"""Behind a proxy that puts a prefix in front of every path, and passes it on or takes it off."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from app.client.connection import Connection, Request
from app.settings import Settings
from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.endpoint import Endpoint
from tests.support.server import Served, serving

PREFIX = "/logs/tide"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, url_prefix=PREFIX) as one:
        yield one


@pytest.fixture(params=[PREFIX, ""], ids=["passed on", "taken off"])
def client(served: Served, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """A client as the proxy: it passes the prefix on, or takes it off."""

    def pass_on(asked: httpx.Request) -> None:
        path = asked.url.raw_path.decode()
        assert path.startswith(f"{PREFIX}/"), f"{path} is not below the prefix"
        asked.url = asked.url.copy_with(raw_path=(request.param + path[len(PREFIX) :]).encode())

    hooks = {"request": [pass_on]}
    with httpx.Client(base_url=served.url, event_hooks=hooks) as one:
        yield one


def test_every_url_that_a_response_names_has_the_prefix(client: httpx.Client) -> None:
    """Whatever names one can be asked for as it is: locations, links, tokens, lists of links."""
    made = client.put(f"{PREFIX}/v1/topics/events", json={})
    assert client.get(made.headers["location"]).json()["topic"] == "events"
    records = f"{PREFIX}/v1/topics/events/partitions/0/records"
    for _ in range(2):  # the second one's head is known
        written = client.post(records, json={"records": [{"value": 1}, {"value": 2}]})
        (read,) = {written.headers["location"]}
        assert len(client.get(read).json()["records"]) == 2
    for accept in ("application/json", "application/x-ndjson"):
        page = client.get(records, params={"max_bytes": 1}, headers={"accept": accept})
        assert client.get(page.links["next"]["url"]).status_code == 200
    streamed = client.get(f"{PREFIX}/v1/topics/events/partitions/0/batches?stream=true")
    assert client.get(streamed.links["next"]["url"]).status_code in {200, 204}
    token = client.post(f"{PREFIX}/v1/topics/events/ingest-tokens").json()
    assert client.post(token["url"], content=b"x").status_code == 200
    links = client.get(f"{PREFIX}/v1").json()["links"]
    assert links == client.get(f"{PREFIX}/").json()["links"]
    for name, url in links.items():
        assert client.get(url).status_code in {200, 404 if name == "console" else 200}, url
    (server,) = client.get(links["openapi"]).json()["servers"]
    assert server["url"] == PREFIX
    moved = client.get(f"{PREFIX}/console")
    assert httpx.URL(f"http://host{PREFIX}/console").join(moved.headers["location"]).path == (
        f"{PREFIX}/console/"
    )


def test_the_prefix_alone_is_the_root(served: Served) -> None:
    """As browsers and people write it; what only begins with the same letters is not below it."""
    with httpx.Client(base_url=served.url) as client:
        for path in (PREFIX, f"{PREFIX}/", "/"):
            assert client.get(path).json()["name"] == "tidelog"
            moved = client.get(path, headers={"accept": "text/html"})
            assert moved.headers["location"] == f"{PREFIX}/console/"
        assert client.get(f"{PREFIX}?a=1").json()["name"] == "tidelog"
        assert client.get(f"{PREFIX}s").status_code == 404


def test_the_programs_of_this_repository_take_an_address_with_a_prefix(served: Served) -> None:
    """The command line and the Spark source."""
    httpx.put(f"{served.url}/v1/topics/events", json={}).raise_for_status()
    with Connection(f"{served.url}{PREFIX}/") as connection:
        (topic,) = connection.json(Request("GET", "/v1/topics"))["topics"]
        assert topic["topic"] == "events"
    with ServiceClient(Endpoint(served.url + PREFIX)) as client:
        assert client.topic_offsets("events") is not None


@pytest.mark.parametrize(
    "prefix", ["tide", "/tide/", "/a//b", "/ä", "/a b", "/", "/a?b", "/" + "a" * 200]
)
def test_other_prefixes_are_refused_at_the_start(tmp_path: Path, prefix: str) -> None:
    """Each would make URLs that are read in two ways."""
    with pytest.raises(ValidationError, match="url_prefix"):
        Settings(data_directory=tmp_path, url_prefix=prefix)
