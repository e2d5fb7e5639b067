"""Endless answers and clients that take nothing, on a loop of the test's own."""

import asyncio
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from app.http.answers import Message
from app.http.slow_clients import CUT_OFF, PIECE_BYTES, Delivery, SlowClients

pytestmark = pytest.mark.anyio


class Client:
    """Takes what it is sent as long as `takes` is set."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.takes = asyncio.Event()
        self.takes.set()

    async def send(self, message: Message) -> None:
        await self.takes.wait()
        assert message["type"] == "http.response.body"
        assert message["more_body"] is True
        self.taken.append(bytes(message["body"]))


async def until_slow(delivery: Delivery) -> None:
    async with asyncio.timeout(60):
        while not delivery.is_slow:
            await checkpoint()


@pytest.mark.parametrize(
    ("size", "pieces"),
    [
        (0, [0]),
        (PIECE_BYTES, [PIECE_BYTES]),
        (PIECE_BYTES + 1, [PIECE_BYTES, 1, 0]),
        (2 * PIECE_BYTES, [PIECE_BYTES, PIECE_BYTES, 0]),
    ],
)
async def test_large_data_goes_piece_by_piece(size: int, pieces: list[int]) -> None:
    """The transport gets no more at a time than it buffers; an empty piece waits for the last."""
    client = Client()
    with SlowClients(stall_timeout_ms=1_000).begin({}, client.send) as delivery:
        await delivery.send(b"x" * size)
    assert [len(piece) for piece in client.taken] == pieces
    assert delivery.blocked_since is None


async def test_a_client_that_takes_in_time_is_not_slow() -> None:
    """Only what is under way counts, not how long a stream lasts."""
    client = Client()
    clients = SlowClients(stall_timeout_ms=40)
    with clients.begin({}, client.send) as quick, clients.begin({}, Client().send) as other:
        await other.send(b"x")
        client.takes.clear()
        sending = asyncio.create_task(quick.send(b"y"))
        await until_slow(quick)
        assert not other.is_slow
        assert clients.slow == 1
        client.takes.set()
        await sending
    assert clients.slow == 0


@pytest.mark.parametrize("offers", [True, False])
async def test_a_client_that_takes_nothing_is_cut_off(offers: bool) -> None:  # noqa: FBT001  # a parameter
    """After twice the time, where the server offers a way to."""
    client, cut = Client(), asyncio.Event()
    scope: dict[str, Any] = {"extensions": {CUT_OFF: cut.set}} if offers else {}
    with SlowClients(stall_timeout_ms=20).begin(scope, client.send) as delivery:
        client.takes.clear()
        sending = asyncio.create_task(delivery.send(b"x"))
        await until_slow(delivery)
        assert not cut.is_set()
        if offers:
            async with asyncio.timeout(60):
                await cut.wait()
        delivery.cut_off()
        client.takes.set()
        await sending


async def test_hurry_gives_less_time() -> None:
    """When the service stops, thirty seconds become two; without clients nothing happens."""
    clients = SlowClients(stall_timeout_ms=30_000)
    clients.hurry()
    client, cut = Client(), asyncio.Event()
    with clients.begin({"extensions": {CUT_OFF: cut.set}}, client.send) as delivery:
        client.takes.clear()
        sending = asyncio.create_task(delivery.send(b"x"))
        await checkpoint()
        assert delivery.blocked_since is not None
        delivery.blocked_since -= 5  # five seconds ago
        clients.hurry()
        assert cut.is_set()
        client.takes.set()
        await sending
