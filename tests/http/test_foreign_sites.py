"""Attacks from a browser: requests that pages of other sites send, and DNS rebinding."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.operations.service import Service
from app.security.sites import Sites
from app.settings import Settings
from engine.errors import InvalidConfig
from tests.support.builders import new_batch
from tests.support.credentials import bearer, create_key
from tests.support.service import BATCHES, OFFSETS, RECORDS, local, log_of, open_service
from tests.support.wire import Connection, Listener, request

pytestmark = pytest.mark.anyio

TOPIC = "/v1/topics/events"
PARTITION = "/v1/topics/events/partitions/0"
ONE = b'{"records":[{"value":1}]}'
BASE64 = b'{"records":[{"value":"aGk="}]}'
V2 = {"content-type": "application/vnd.kafka.binary.v2+json"}
NDJSON = {"content-type": "application/x-ndjson"}
TEXT = {"content-type": "text/plain;charset=UTF-8"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
ALL = ("read:*", "append:*", "admin:*")

CHANGES: dict[str, tuple[str, str, bytes, dict[str, str]]] = {
    "hot append": ("POST", RECORDS, ONE, {}),
    "hot append of batches": ("POST", BATCHES, bytes(new_batch(1)), {}),
    "append in a task": ("POST", RECORDS, ONE, {"idempotency-key": "k"}),
    "append through FastAPI": ("POST", f"{RECORDS}?acks=al%6C", ONE, {}),
    "append to a topic": ("POST", f"{TOPIC}/records", ONE, {}),
    "stream": ("POST", f"{RECORDS}?stream=true", b'{"value":1}\n', NDJSON),
    "Kafka REST": ("POST", "/topics/events", BASE64, V2),
    "Kafka REST, partition": ("POST", "/topics/events/partitions/0", BASE64, V2),
    "create": ("PUT", "/v1/topics/other", b"{}", {}),
    "configure": ("PATCH", TOPIC, b'{"config":{"retention.ms":"1"}}', {}),
    "delete": ("DELETE", TOPIC, b"", {}),
    "truncate": ("POST", f"{PARTITION}/truncate", b'{"to_offset":0}', {"if-match": '"x"'}),
    "delete records": ("POST", f"{PARTITION}/delete-records", b'{"before_offset":-1}', {}),
    "roll": ("POST", f"{PARTITION}/roll", b"", {}),
    "a form that rolls": ("POST", f"{PARTITION}/roll", b"a=b", FORM),
    "flush": ("POST", f"{PARTITION}/flush", b"", {}),
    "retention": ("POST", f"{PARTITION}/retention", b"", {}),
    "compact": ("POST", f"{PARTITION}/compact", b"", {}),
    "producer": ("POST", "/v1/producers", b"", {}),
    "group": ("PUT", "/v1/groups/g/offsets/events/0", b'{"offset":0}', {}),
    "consumer": ("POST", "/consumers/g", b"{}", V2),
    "no such path": ("POST", "/nowhere", b"", {}),
}
FOREIGN: dict[str, dict[str, str]] = {
    "a foreign origin": {"origin": "http://evil.example"},
    "a sandboxed frame": {"origin": "null"},
    "another port": {"origin": "http://localhost:1"},
    "another scheme": {"origin": "https://localhost"},
    "cross-site": {"sec-fetch-site": "cross-site"},
    "same-site": {"sec-fetch-site": "same-site"},
    "the whole of Chromium": {
        "origin": "http://evil.example",
        "referer": "http://evil.example/",
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "no-cors",
        "sec-fetch-dest": "empty",
    },
}


@asynccontextmanager
async def connected(directory: Path, **settings: Any) -> AsyncIterator[tuple[Service, Connection]]:
    """A service with the topic `events`, and a connection with cached paths."""
    async with open_service(directory, **settings) as service:
        connection = Listener(service).connect()
        assert (await connection.ask(request("PUT", TOPIC, b"{}"))).status == 201
        for path, body in ((RECORDS, ONE), (BATCHES, bytes(new_batch(1)))) * 2:
            assert (await connection.ask(request("POST", path, body))).status == 201
        yield service, connection


def end_of(service: Service) -> tuple[int, int, int]:
    """What any of the attacks would change."""
    log = log_of(service)
    marks = log.watermarks
    return marks.log_start_offset, marks.log_end_offset, len(log.reader.segments)


def code_of(body: bytes) -> object:
    """The stable code of a problem, or the number of the proxies' dialect."""
    told = json.loads(body)
    return told.get("code", told.get("error_code"))


async def test_a_refusal_belongs_to_the_clients_trace(tmp_path: Path) -> None:
    """Also where nothing but the host was looked at."""
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    async with open_service(tmp_path) as service:
        wrong = {"host": "elsewhere.example", "traceparent": trace}
        reply = await Listener(service).connect().ask(request("GET", "/v1/topics", headers=wrong))
        assert (reply.status, dict(reply.headers)[b"traceparent"]) == (421, trace.encode())


async def test_no_page_of_another_site_changes_anything(tmp_path: Path) -> None:
    """On every lane, with a head that is remembered but for the page's headers: 403 (Z9)."""
    async with connected(tmp_path) as (service, connection):
        before = end_of(service)
        for method, path, body, more in CHANGES.values():
            for foreign in FOREIGN.values():
                reply = await connection.ask(request(method, path, body, more | foreign))
                expected = 40301 if path.startswith(("/topics", "/cons")) else "cross_site_request"
                assert (reply.status, code_of(reply.body)) == (403, expected), (path, foreign)
        assert end_of(service) == before
        assert list(local(service).manager.topics()) == ["events"]


async def test_a_key_does_not_open_the_door_to_another_site(tmp_path: Path) -> None:
    """A page that has got hold of credentials, or a browser that adds them, is refused as well."""
    key = bearer(create_key(tmp_path, "root", *ALL))
    async with open_service(tmp_path) as service:
        connection = Listener(service).connect()
        assert (await connection.ask(request("PUT", TOPIC, b"{}", key))).status == 201
        for _ in range(3):
            assert (await connection.ask(request("POST", RECORDS, ONE, key))).status == 201
        for method, path, body, more in CHANGES.values():
            for foreign in FOREIGN.values():
                sent = request(method, path, body, key | more | foreign)
                assert (await connection.ask(sent)).status == 403, (path, foreign)
        assert end_of(service)[1] == 3


@pytest.mark.parametrize("path", [RECORDS, f"{TOPIC}/records"])
async def test_pages_of_the_service_and_programs_may_change_things(
    tmp_path: Path, path: str
) -> None:
    """The service's own origin, a listed one, a typed URL, and programs without an Origin."""
    async with connected(tmp_path, cors_origins=("https://pages.example",)) as (_, connection):
        for own in (
            {},
            {"origin": "http://localhost"},
            {"origin": "http://localhost", "sec-fetch-site": "same-origin"},
            {"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080"},
            {"host": "[::1]:8080", "origin": "http://[::1]:8080"},
            {"sec-fetch-site": "none"},
            {"origin": "https://pages.example", "sec-fetch-site": "cross-site"},
        ):
            assert (await connection.ask(request("POST", path, ONE, own))).status == 201, own


async def test_a_page_of_another_site_may_ask_what_changes_nothing(tmp_path: Path) -> None:
    """GET and HEAD are answered; without CORS headers, so that the page cannot read them."""
    async with connected(tmp_path) as (_, connection):
        for path in (OFFSETS, RECORDS, TOPIC, "/topics/events"):
            reply = await connection.ask(request("GET", path, headers=FOREIGN["cross-site"]))
            assert reply.status == 200
            names = {name for name, _ in reply.headers}
            assert not [name for name in names if name.startswith(b"access-control")]
            assert b"set-cookie" not in names


@pytest.mark.parametrize("header", ["origin", "sec-fetch-site"])
async def test_what_the_browser_says_is_said_once(tmp_path: Path, header: str) -> None:
    """Of two values, one would be looked at and the other be meant."""
    async with connected(tmp_path) as (service, connection):
        before = end_of(service)
        twice = b"%b: same-origin\r\n" % header.encode() * 2
        sent = request("POST", RECORDS, ONE).replace(b"\r\n\r\n", b"\r\n" + twice + b"\r\n")
        assert (await connection.ask(sent)).status == 400
        assert end_of(service) == before


BODIES = {name: change for name, change in CHANGES.items() if change[2] and name != "consumer"}


@pytest.mark.parametrize("attack", sorted(BODIES.keys() - {"no such path", "a form that rolls"}))
@pytest.mark.parametrize("kind", [None, TEXT, FORM], ids=["none", "text", "form"])
async def test_a_body_needs_its_type(
    tmp_path: Path, attack: str, kind: dict[str, str] | None
) -> None:
    """A body that a page may send without a preflight is 415, with the header to send (Z10)."""
    method, path, body, more = BODIES[attack]
    async with connected(tmp_path) as (service, connection):
        before = end_of(service)
        sent = request(method, path, body, more | (kind or {"content-type": "?"}))
        if kind is None:
            sent = sent.replace(b"content-type: ?\r\n", b"")
        reply = await connection.ask(sent)
        assert reply.status == 415, reply.body
        assert b"send Content-Type: application/" in reply.body
        assert dict(reply.headers)[b"accept-post"]
        assert end_of(service) == before


READS = [
    ("GET", path, b"", dict[str, str]())
    for path in (RECORDS, BATCHES, OFFSETS, f"{PARTITION}/tail", TOPIC, "/v1/topics",
                 "/topics", "/metrics", "/docs", "/openapi.json", "/nowhere")
]  # fmt: skip
REBOUND = {"host": "rebind.evil.example:8080", "origin": "http://rebind.evil.example:8080"}


async def test_a_name_that_was_rebound_to_loopback_reaches_nothing(tmp_path: Path) -> None:
    """Without credentials a foreign `Host` is 421 on every lane, for reads too (Z11)."""
    async with connected(tmp_path) as (service, connection):
        before = end_of(service)
        rebound = REBOUND | {"sec-fetch-site": "same-origin"}
        for method, path, body, more in (*CHANGES.values(), *READS):
            reply = await connection.ask(request(method, path, body, more | rebound))
            expected = 421 if path.startswith(("/topics", "/cons")) else "misdirected_request"
            assert (reply.status, code_of(reply.body)) == (421, expected), path
        assert end_of(service) == before
        preflight = rebound | {"access-control-request-method": "PUT"}
        assert (await connection.ask(request("OPTIONS", TOPIC, headers=preflight))).status == 421


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0",
     "[::2]", "localhost@evil.example", "[127.0.0.1", "evil.example:80:localhost", "2130706433",
     ""],
)  # fmt: skip
async def test_what_looks_like_loopback_is_not(tmp_path: Path, host: str) -> None:
    """Only whole names count; known connections are checked again."""
    async with connected(tmp_path) as (_, connection):
        for method, path in (("GET", OFFSETS), ("GET", TOPIC)):
            reply = await connection.ask(request(method, path, headers={"host": host}))
            assert reply.status == 421


@pytest.mark.parametrize(
    ("url", "host", "status"),
    [
        ("http://evil.example", "localhost", 421),
        ("http://evil.example:8080", "localhost", 421),
        ("HTTPS://user@evil.example", "localhost", 421),
        ("http://localhost", "evil.example", 200),
        ("http://127.0.0.1:9", "localhost", 200),
    ],
)
async def test_the_name_in_an_absolute_url_replaces_the_host(
    tmp_path: Path, url: str, host: str, status: int
) -> None:
    """A proxy in front routes by it (RFC 9112, 3.2.2); on every lane, of a known connection too."""
    async with connected(tmp_path) as (_, connection):
        for path in (OFFSETS, TOPIC, OFFSETS):
            reply = await connection.ask(request("GET", url + path, headers={"host": host}))
            assert reply.status == status


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
async def test_a_probe_may_use_any_name(tmp_path: Path, path: str) -> None:
    """A kubelet uses the address of its pod."""
    async with connected(tmp_path) as (_, connection):
        reply = await connection.ask(request("GET", path, headers={"host": "10.2.3.4:8080"}))
        assert reply.status == 200


async def test_a_probe_returns_no_names(tmp_path: Path) -> None:
    """The cause of a failure needs the scope of /metrics.

    It is hidden from a foreign host and without a key.
    """
    probe = request("GET", "/readyz", headers={"host": "10.2.3.4:8080"})
    async with connected(tmp_path) as (service, connection):
        local(service).manager.health.fail(OSError(5, "Input/output error", str(tmp_path)))
        told = json.loads((await connection.ask(request("GET", "/readyz"))).body)
        assert "Input/output error" in told["detail"]
        assert (await connection.ask(probe)).body == b'{"status":"offline"}'
        key = create_key(tmp_path, "scraper", "metrics")
        await service.security.refresh_keys()
        ready = request("GET", "/readyz")
        assert (await connection.ask(ready)).body == b'{"status":"offline"}'
        for token, has_detail in ((key, True), (f"{key[:-1]}!", False)):
            sent = request("GET", "/readyz", headers=bearer(token))
            assert ("detail" in json.loads((await connection.ask(sent)).body)) is has_detail


async def test_a_client_of_http_1_0_need_not_name_a_host(tmp_path: Path) -> None:
    """No browser leaves it out."""
    async with connected(tmp_path) as (_, connection):
        reply = await connection.ask(b"GET %b HTTP/1.0\r\n\r\n" % TOPIC.encode())
        assert reply.status == 200


async def test_listed_names_are_accepted(tmp_path: Path) -> None:
    """In any case, with any port, with the dot of a whole name."""
    async with connected(tmp_path, allowed_hosts=("Log.example", "fd00::7")) as (_, connection):
        for host in ("log.example", "LOG.example.:8443", "[fd00::7]:80", "localhost:1", "[::1]"):
            for path in (OFFSETS, TOPIC):
                reply = await connection.ask(request("GET", path, headers={"host": host}))
                assert reply.status == 200, host


async def test_with_credentials_names_are_checked_only_if_some_are_listed(tmp_path: Path) -> None:
    """A page under a foreign name has no credentials; if names are listed, they are checked."""
    key = bearer(create_key(tmp_path, "root", *ALL))
    for allowed_hosts, status in (((), 404), (("log.example",), 421)):
        async with open_service(tmp_path, allowed_hosts=allowed_hosts) as service:
            connection = Listener(service).connect()
            sent = request("GET", TOPIC, headers=key | {"host": "proxy.example"})
            assert (await connection.ask(sent)).status == status


async def test_the_first_key_opens_other_names(tmp_path: Path) -> None:
    """From then on the key is checked instead."""
    async with connected(tmp_path) as (service, connection):
        elsewhere = request("GET", OFFSETS, headers={"host": "log.example"})
        assert (await connection.ask(elsewhere)).status == 421
        create_key(tmp_path, "root", *ALL)
        await service.security.refresh_keys()
        assert (await connection.ask(elsewhere)).status == 401


async def test_the_address_listened_on_is_accepted(service: Service) -> None:
    """By the name that was given, and by the address at which the connection came in."""
    sites = service.sites
    assert not sites.accepts(b"log.example", "10.0.0.1")
    sites.listen_on("0.0.0.0")  # stands for all addresses, and is not the name of one
    assert not sites.accepts(b"0.0.0.0:8080", "10.0.0.1")
    sites.listen_on("Log.example")
    assert sites.accepts(b"log.example:8080", "10.0.0.1")
    assert sites.accepts(b"10.0.0.1:8080", "10.0.0.1")
    assert not sites.accepts(b"10.0.0.1:8080", "10.0.0.2")


async def test_many_names_fill_no_memory(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of accepted names is bounded."""
    monkeypatch.setattr("app.security.sites.MAX_NAMES", 2)
    for port in range(5):
        assert service.sites.accepts(b"localhost:%d" % port, "")


async def test_a_long_name_fills_no_memory(tmp_path: Path) -> None:
    """With credentials every `Host` is accepted; an invalid one is not remembered."""
    create_key(tmp_path, "root", *ALL)
    async with open_service(tmp_path) as service:
        names = [b"log.example:8080", b"x" * 261]
        assert [service.sites.accepts(name, "") for name in names] == [True, True]
        assert service.sites.accepted == {names[0]}


@pytest.mark.parametrize("wrong", ["http://log.example", "log.example:8080", "", "a b", "*/"])
def test_an_allowed_host_is_a_name(tmp_path: Path, wrong: str) -> None:
    """A name that can never match is reported at startup."""
    settings = Settings(data_directory=tmp_path, allowed_hosts=(wrong,))
    with pytest.raises(InvalidConfig):
        Sites(settings, Service(Settings(data_directory=tmp_path)).security)
