"""Appends during which their topic is deleted, and perhaps created again."""

import json
from pathlib import Path

import pytest

from app.operations.service import Service
from tests.support.service import OFFSETS, RECORDS, log_of, open_service
from tests.support.wire import Connection, Listener, request

pytestmark = pytest.mark.anyio

ONE = b'{"records":[{"value":1}]}'
LOOK = request("GET", OFFSETS)
PUT = request("PUT", "/v1/topics/events", b"{}")
DELETE = request("DELETE", "/v1/topics/events")


async def begun(service: Service) -> Connection:
    """A connection whose service has appended to the topic."""
    connection = Listener(service).connect()
    for each in (PUT, request("POST", RECORDS, ONE)):
        assert (await connection.ask(each)).status == 201
    return connection


@pytest.mark.parametrize("headers", [{}, {"idempotency-key": "a"}], ids=["usual", "unusual"])
async def test_a_pipelined_append_is_of_the_topic_made_ahead_of_it(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    """Not of the one that was there when the request was parsed: that would lose it."""
    async with open_service(tmp_path) as service:
        connection = await begun(service)
        append = request("POST", RECORDS, ONE, headers)
        connection.send(DELETE + PUT + append + LOOK + DELETE + append)
        replies = [await connection.answer() for _ in range(4)]
        assert [reply.status for reply in replies] == [204, 201, 201, 200]
        assert json.loads(replies[2].body)["base_offset"] == 0
        assert json.loads(replies[3].body)["high_watermark"] == 1
        replies = [await connection.answer() for _ in range(2)]
        assert [reply.status for reply in replies] == [204, 404]
        assert json.loads(replies[1].body)["code"] == "topic_not_found"


@pytest.mark.parametrize("headers", [{}, {"idempotency-key": "a"}], ids=["usual", "unusual"])
@pytest.mark.parametrize("is_made_again", [True, False])
async def test_a_body_that_outlives_its_topic_is_not_acknowledged(
    tmp_path: Path, headers: dict[str, str], *, is_made_again: bool
) -> None:
    """It would go into files that are about to be removed."""
    async with open_service(tmp_path) as service:
        connection = await begun(service)
        append = request("POST", RECORDS, ONE, headers)
        connection.send(append[:-1])
        other = Listener(service).connect()
        assert (await other.ask(DELETE)).status == 204
        if is_made_again:
            assert (await other.ask(PUT)).status == 201
        reply = await connection.ask(append[-1:])
        assert (reply.status, json.loads(reply.body)["code"]) == (404, "topic_not_found")
        if is_made_again:
            assert log_of(service).watermarks.log_end_offset == 0
