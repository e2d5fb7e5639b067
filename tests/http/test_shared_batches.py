"""Requests of the same turn of the event loop, and the response of each client."""

import json
from random import Random

import pytest

from app.operations.service import Service
from tests.http.test_hot_reads import knowing, values_of
from tests.support.logs import read_headers
from tests.support.service import RECORDS, log_of
from tests.support.wire import Connection, request

pytestmark = pytest.mark.anyio

CLIENTS = 24


async def clients_of(service: Service) -> list[Connection]:
    """Connections to a service whose topic has had its first append, alone."""
    listener = await knowing(service)
    connections = [listener.connect() for _ in range(CLIENTS)]
    first = request("POST", RECORDS, b'{"records":[{"value":"first"}]}')
    assert (await connections[0].ask(first)).status == 201
    return connections


@pytest.mark.parametrize("seed", range(5))
async def test_each_client_finds_its_records_where_it_was_told(service: Service, seed: int) -> None:
    """In rounds of requests of one to three records: all are in one batch a round."""
    chance = Random(seed)
    connections = await clients_of(service)
    for round_number in range(4):
        sent = [
            [f"{round_number} {client} {record}" for record in range(chance.randint(1, 3))]
            for client in range(CLIENTS)
        ]
        for connection, values in zip(connections, sent, strict=True):
            body = json.dumps({"records": [{"value": value} for value in values]}).encode()
            connection.send(request("POST", RECORDS, body))
        for connection, values in zip(connections, sent, strict=True):
            reply = await connection.answer()
            assert reply.status == 201, reply.body
            receipt = json.loads(reply.body)
            assert receipt["count"] == len(values)
            page = f"offset={receipt['base_offset']}&end_offset={receipt['last_offset'] + 1}"
            found = await connection.ask(request("GET", f"{RECORDS}?{page}"))
            assert values_of(found.body) == values
    assert len(read_headers(log_of(service))) == 1 + 4


async def test_only_the_last_receipt_has_the_etag_of_the_log_end(
    service: Service,
) -> None:
    """Of those who shared a batch only the last has the ETag of the log end; the others get 412."""
    connections = await clients_of(service)
    for client, connection in enumerate(connections):
        connection.send(request("POST", RECORDS, b'{"records":[{"value":%d}]}' % client))
    tags = [dict((await connection.answer()).headers)[b"etag"] for connection in connections]
    again = b'{"records":[{"value":"again"}]}'
    statuses = [
        (await connection.ask(request("POST", RECORDS, again, {"if-match": tag.decode()}))).status
        for connection, tag in zip(connections, tags, strict=True)
    ]
    assert statuses == [412] * (CLIENTS - 1) + [201]
