"""The issuer's keys: fetched in the background, seldom, and kept when that fails."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.errors import CredentialsUnavailable
from app.security.tokens import MAX_BYTES, IssuerKeys, source_of
from app.settings import Settings
from engine.errors import InvalidConfig
from engine.fs.posix import PosixFileSystem
from tests.support.issuer import AUDIENCE, ISSUER, jwk, jwks
from tests.support.time import ManualClock

pytestmark = pytest.mark.anyio

FS = PosixFileSystem()


def settings_of(source: object, **more: Any) -> Settings:
    named = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, **more}
    return Settings(jwks=str(source), **named)


class World:
    """Keys whose source a test holds in its hand."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.content: bytes | Exception = jwks(jwk("P-256", "k"))
        self.fetches = 0
        self.keys = IssuerKeys(self._fetch, settings_of("unused", **settings), self.clock)

    async def _fetch(self) -> bytes:
        self.fetches += 1
        if isinstance(self.content, Exception):
            raise self.content
        return self.content

    def knows(self, key_id: str) -> bool:
        return self.keys.find(key_id, "ES256") is not None


async def test_until_the_keys_are_known_nothing_can_be_told() -> None:
    """Neither yes nor no: the client is asked to come again."""
    world = World()
    with pytest.raises(CredentialsUnavailable):
        world.knows("k")
    await world.keys.refresh()
    assert world.knows("k")
    assert not world.knows("other")


async def test_keys_outlive_a_fetch_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """Known keys stay valid; tokens with unknown ones get 503 until a fetch succeeds."""
    world = World()
    await world.keys.refresh()
    for failure in (
        OSError("no route"),
        b"no JSON",
        b"[]",
        b'{"keys": 7}',
        jwks(),
        b'{"keys": [7]}',
    ):
        world.content = failure
        await world.keys.refresh()
        assert world.knows("k")
        with pytest.raises(CredentialsUnavailable):
            world.knows("other")
    assert "no route" in caplog.text


async def test_keys_that_cannot_be_fetched_for_long_are_valid_no_more() -> None:
    """One of them may have been withdrawn; when they can be fetched again they are valid again."""
    world = World(jwks_stale_timeout_ms=60_000)
    await world.keys.refresh()
    key = world.keys.find("k", "ES256")
    assert key is not None
    content, world.content = world.content, OSError("gone")
    world.clock.advance(59_999)
    await world.keys.refresh()
    assert world.knows("k")
    assert world.keys.has_still("k", "ES256", key)
    world.clock.advance(1)
    await world.keys.refresh()
    with pytest.raises(CredentialsUnavailable):
        world.knows("k")
    assert not world.keys.has_still("k", "ES256", key)
    world.content = content
    await world.keys.refresh()
    assert world.knows("k")


async def test_shared_secrets_are_no_keys() -> None:
    """A key set with nothing but a secret in it is refused as a whole."""
    world = World()
    world.content = jwks({"kty": "oct", "k": "c2VjcmV0", "kid": "k"})
    await world.keys.refresh()
    with pytest.raises(CredentialsUnavailable):
        world.knows("k")


async def test_a_key_that_cannot_be_used_is_no_key(caplog: pytest.LogCaptureFixture) -> None:
    """One that is damaged does not keep the others from being used."""
    world = World()
    world.content = jwks({**jwk("P-256", "broken"), "x": "AA"}, jwk("P-256", "k"))
    await world.keys.refresh()
    assert not world.knows("broken")
    assert world.knows("k")
    assert "broken" in caplog.text


async def test_an_unknown_key_asks_for_a_fetch_now_and_then() -> None:
    """A new key is found soon, and made-up ids do not make the service hammer its issuer."""
    world = World()
    fetching = asyncio.create_task(world.keys.keep_fresh())
    await passed(lambda: world.fetches == 1)
    world.content = jwks(jwk("P-256", "k"), jwk("P-256", "new"))
    assert not world.knows("new")  # the last fetch is too young
    world.clock.advance(10_000)
    with pytest.raises(CredentialsUnavailable):
        world.knows("new")
    await passed(lambda: world.fetches == 2)
    assert world.knows("new")
    for number in range(100):
        assert not world.knows(f"made up {number}")
    assert world.fetches == 2
    fetching.cancel()


async def test_keys_are_fetched_again_by_and_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a request: once every interval, sooner after a failure."""
    monkeypatch.setattr("app.security.tokens.RETRY_MS", 1)
    world = World(jwks_refresh_interval_ms=600_000)
    world.content = OSError("no route")
    fetching = asyncio.create_task(world.keys.keep_fresh())
    await passed(lambda: world.fetches >= 3)
    fetching.cancel()


async def passed(condition: Any) -> None:
    """Let the loop go on until the condition holds; pytest's time-out is the bound."""
    turn = asyncio.Event()
    while not condition():
        asyncio.get_running_loop().call_later(0.001, turn.set)
        await turn.wait()
        turn.clear()


async def test_keys_can_be_in_a_file(tmp_path: Path) -> None:
    """The file is read when keys are fetched."""
    path = tmp_path / "keys.json"
    path.write_bytes(b"content")
    assert await source_of(settings_of(path), FS)() == b"content"


@contextmanager
def publishing(content: bytes, status: int = 200, pause_s: float = 0) -> Iterator[str]:
    """An HTTP server on loopback that answers one thing, if need be byte by byte."""
    closing = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("location", "/elsewhere")
            self.end_headers()
            if not pause_s:
                self.wfile.write(content)
                return
            with suppress(ConnectionError):
                for byte in content:
                    self.wfile.write(bytes([byte]))
                    closing.wait(pause_s)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/jwks"
    finally:
        closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


async def test_keys_can_be_elsewhere() -> None:
    """They are fetched over HTTP."""
    with publishing(b"content") as url:
        assert await source_of(settings_of(url), FS)() == b"content"


@pytest.mark.parametrize(
    ("content", "status"), [(b"", 500), (b"", 302), (b"x" * (MAX_BYTES + 1), 200)]
)
async def test_what_is_no_key_set_is_not_taken(
    content: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors, redirects and bodies that are too large are failures, and are logged.

    The log has no query of the URL: it may be a secret.
    """
    with publishing(content, status) as url:
        settings = settings_of(f"{url}?token=secret")
        await IssuerKeys(source_of(settings, FS), settings, ManualClock()).refresh()
    assert "cannot be fetched" in caplog.text
    assert "secret" not in caplog.text


async def test_a_fetch_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An issuer that sends a byte now and then is given up when the whole has taken too long."""
    monkeypatch.setattr("app.security.tokens.FETCH_LIMIT_MS", 100)
    with publishing(b"x" * 50, pause_s=0.01) as url, pytest.raises(TimeoutError, match="100 ms"):
        await source_of(settings_of(url), FS)()


@pytest.mark.parametrize(
    ("source", "more", "sentence"),
    [
        ("http://issuer.example/jwks", {}, "https"),
        ("ftp://issuer.example/jwks", {}, "https"),
        ("https://me:secret@issuer.example/jwks", {}, "must not have credentials"),
        ("keys.json", {"jwt_issuer": ""}, "jwt_issuer"),
        ("keys.json", {"jwt_audience": ""}, "jwt_audience"),
    ],
)
async def test_settings_that_are_not_safe_are_refused(
    source: str, more: dict[str, str], sentence: str
) -> None:
    """Keys over plain HTTP could be forged, and so could tokens without issuer and audience."""
    with pytest.raises(InvalidConfig, match=sentence):
        source_of(settings_of(source, **more), FS)
