"""Bodies: counted while they stream, refused before they are held."""

import asyncio
from typing import Any

import pytest

from app.errors import MalformedRequest, RequestTimedOut
from app.http.answers import Answer, Body, Message, send_answer
from app.limits.admission import Admission, Phase
from app.operations.exchange import Exchange
from app.operations.request_content import collect_body, negotiate
from app.operations.service import Service
from app.operations.wait import ClientGone
from app.security.principal import anonymous
from app.settings import Settings
from engine.errors import TooLarge

pytestmark = pytest.mark.anyio

LIMIT = ("max_request_bytes", 10)


class Sender:
    """A client that sends these chunks, then hangs up, or stays silent."""

    def __init__(self, *chunks: bytes, hangs_up: bool = True) -> None:
        self._chunks = list(chunks)
        self._hangs_up = hangs_up

    async def __call__(self) -> Message:
        if self._chunks:
            chunk = self._chunks.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": chunk[-1:] != b"."}
        if not self._hangs_up:
            await asyncio.get_running_loop().create_future()
        return {"type": "http.disconnect"}


async def collected(sender: Sender, declared: int | None = None, **settings: Any) -> Body:
    """The body as it is collected from a client; each byte of it was counted."""
    counted: list[int] = []
    body = await collect_body(
        sender, counted.append, Settings(**settings), declared=declared, limit=LIMIT
    )
    assert sum(counted) == len(body)
    return body


@pytest.mark.parametrize("chunks", [(b"whole.",), (b"in ", b"parts."), (b"a", b"", b"b.")])
async def test_a_body_is_collected(chunks: tuple[bytes, ...]) -> None:
    """At once or in parts, empty ones too: the same bytes."""
    assert await collected(Sender(*chunks)) == b"".join(chunks)


@pytest.mark.parametrize("chunks", [(), (b"half",)])
async def test_a_client_that_hangs_up_is_noticed(chunks: tuple[bytes, ...]) -> None:
    """Before the body or in the middle of it: no response can be sent."""
    with pytest.raises(ClientGone):
        await collected(Sender(*chunks))


@pytest.mark.parametrize("setting", ["body_timeout_ms", "body_stall_timeout_ms"])
async def test_a_body_that_never_ends_is_refused_in_time(setting: str) -> None:
    """A client that stops sending gets 408."""
    with pytest.raises(RequestTimedOut):
        await collected(Sender(b"half", hangs_up=False), **{setting: 5})


@pytest.mark.parametrize(
    ("declared", "chunks"), [(11, ()), (None, (b"0123456789!.",)), (5, (b"01234567", b"89!."))]
)
async def test_a_body_that_is_too_large_is_not_held(
    declared: int | None, chunks: tuple[bytes, ...]
) -> None:
    """Whatever length was declared, what comes is counted."""
    with pytest.raises(TooLarge):
        await collected(Sender(*chunks), declared)


@pytest.mark.parametrize("length", [b"ten", b"-1", b"9" * 20])
async def test_a_length_that_is_no_number_is_malformed(tmp_path: object, length: bytes) -> None:
    """A Content-Length that HTTP servers should have refused is refused here."""
    service = Service(Settings(data_directory=str(tmp_path)))  # type: ignore[arg-type]  # as from the environment
    service.admission.phase = Phase.READY
    exchange = Exchange(service, {b"content-length": length}, Sender(), caller=anonymous())
    with pytest.raises(MalformedRequest):
        await exchange.body()
    service.workers.close()


def test_preferences_without_a_weight_are_equal() -> None:
    """Parameters other than q do not weigh."""
    offered = (b"application/json", b"application/x-ndjson")
    assert negotiate(b"application/json;charset=utf-8", offered) == offered[0]
    assert negotiate(b"application/x-ndjson;v=1;q=2, */*;q=0.1", offered) == offered[1]


async def test_a_large_answer_goes_out_in_pieces() -> None:
    """Each piece waits for the one before; together they are the body."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(dict(message))

    body = bytes(range(256)) * 12_000
    await send_answer(send, Answer(200, [], body))
    assert sent[0]["headers"] == [(b"content-length", b"3072000")]
    assert b"".join(bytes(message["body"]) for message in sent[1:]) == body
    assert [message.get("more_body", False) for message in sent[1:]] == [True, True, False]


def test_a_ticket_parks_once() -> None:
    """Parking and resuming twice counts once."""
    admission = Admission(Settings())
    admission.phase = Phase.READY
    ticket = admission.admit("another")
    ticket.park()
    ticket.park()
    ticket.resume()
    ticket.resume()
    ticket.close()
    assert (admission.requests, admission.waiting_readers) == (0, 0)
