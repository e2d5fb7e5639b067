"""What is around FastAPI, and what joins the writes of its server."""

import asyncio
from typing import Any

import pytest
from fastapi import HTTPException

from app.api.application import create_api
from app.api.frame import Frame
from app.http.answers import Message, Receive, Scope, Send
from app.operations.service import Service
from app.settings import Settings
from app.wire.connections import CoalescingTransport
from tests.support.service import client_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def service(tmp_path: Any) -> Service:
    return Service(Settings(data_directory=tmp_path))


async def nothing() -> Message:
    return {"type": "http.disconnect"}


async def ignore(_message: Message) -> None:
    """Send nothing anywhere."""


async def test_an_error_without_an_answer_is_passed_on(service: Service) -> None:
    """Only an error that was answered already ends in the frame; its answer is counted."""

    async def broken(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise RuntimeError("broken")

    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "headers": []}
    with pytest.raises(RuntimeError):
        await Frame(broken, service)(scope, nothing, ignore)


async def test_what_is_not_http_passes_through(service: Service) -> None:
    """Lifespan messages are the application's own."""
    seen: list[str] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope["type"])

    await Frame(app, service)({"type": "lifespan"}, nothing, ignore)
    assert seen == ["lifespan"]


async def test_the_framework_s_own_refusals_are_problems(service: Service) -> None:
    """Whatever status FastAPI itself raises becomes a problem document."""
    api = create_api(service)

    async def teapot() -> None:
        raise HTTPException(418, "short and stout")

    api.add_api_route("/teapot", teapot)
    async with client_of(Frame(api, service)) as client:
        answer = await client.get("/teapot")
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")
    assert answer.json()["detail"] == "short and stout"


def test_the_document_is_made_once(service: Service) -> None:
    """Asking again gives the same object."""
    api = create_api(service)
    assert api.openapi() is api.openapi()


async def test_the_application_runs_on_its_own(service: Service) -> None:
    """Without a server, FastAPI's lifespan opens and closes the service."""
    api = create_api(service)
    async with api.router.lifespan_context(api):
        while service.readiness() != {"status": "ready"}:
            await noop_turn()
    assert service.readiness() == {"status": "draining"}


class Wire(asyncio.Transport):
    """A transport that remembers each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.writes.append(b"".join(list_of_data))

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return name


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize("size", [0, 10, 100_000])
async def test_head_and_body_leave_together(size: int) -> None:
    """A head and the body that follows it are one write, whatever the size."""
    wire = Wire()
    one = CoalescingTransport(wire, 1.0)
    one.write(HEAD)
    one.write(b"x" * size)
    assert wire.writes == [HEAD + b"x" * size]
    one.write(b"more")
    assert wire.writes[1:] == [b"more"]


async def test_a_head_alone_leaves_with_the_next_turn(anyio_backend: str) -> None:
    """Nothing waits longer than a turn of the loop, nor beyond the end of the connection."""
    wire = Wire()
    one = CoalescingTransport(wire, 1.0)
    one.write(HEAD)
    await noop_turn()
    assert wire.writes == [HEAD]
    one.write(HEAD)
    one.close()
    assert (wire.writes, wire.closed) == ([HEAD, HEAD], True)
    assert one.get_extra_info("peername") == "peername"


async def test_a_head_is_dropped_with_its_connection(anyio_backend: str) -> None:
    """A write to a transport that was aborted raises in uvloop."""
    wire = Wire()
    one = CoalescingTransport(wire, 1.0)
    one.write(HEAD)
    one.abort()
    await noop_turn()
    assert wire.writes == []


async def noop_turn() -> None:
    """Return after what was due in this turn of the loop."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, None)
    await done
