"""Whatever one answer says of a log is from one moment: bytes, offsets, epoch, links and tag.

A truncation may come between any two looks at a log. These tests put it there.
"""

import re

import pytest

from app.codecs.calls import OffsetSpec, ReadCall
from app.codecs.receipts import marks_of, receipt_body, receipt_head
from app.operations.exchange import Exchange
from app.operations.read.fetch import fetch, fetch_now, start_offset
from app.operations.read.offsets import get_offset_at, known_offsets
from app.operations.read.read import find, records_answer
from app.operations.read.tail import open_tail
from app.security.principal import anonymous
from app.store.port import Partition
from engine.errors import LogReplaced
from tests.support.builders import new_batch
from tests.support.service import RECORDS, Api

pytestmark = pytest.mark.anyio

EVENTS = "/v1/topics/events/partitions/0"


def partition_of(api: Api) -> Partition:
    return api.service.partition("events", 0)


async def replace_end(api: Api) -> None:
    """Cut the last record off, and write others there."""
    end = (await api.client.get(f"{EVENTS}/offsets")).headers
    cut = {"to_offset": int(end["log-end-offset"]) - 1}
    condition = {"if-match": end["etag"]}
    done = await api.client.post(f"{EVENTS}/truncate", json=cut, headers=condition)
    assert done.status_code == 200
    await api.append("new", "new")


def exchange_of(api: Api) -> Exchange:
    return Exchange(api.service, {}, caller=anonymous())


async def test_a_read_that_names_a_log_never_gets_another_ones_records(api: Api) -> None:
    """Looked at before, the log is the named one; the read that follows it is of the next."""
    for number in range(3):
        await api.append(number)
    partition, exchange = partition_of(api), exchange_of(api)
    call = ReadCall(OffsetSpec(2), log_id=partition.log_id)
    start = await start_offset(exchange, partition, call)
    await replace_end(api)
    with pytest.raises(LogReplaced):
        fetch_now(partition, call, start, max_bytes=100)
    with pytest.raises(LogReplaced):
        await fetch(partition, call, start, max_bytes=100)
    beyond = call._replace(start=OffsetSpec(9), on_out_of_range="latest")
    with pytest.raises(LogReplaced):
        await fetch(partition, beyond, 9, max_bytes=100)


async def test_a_page_is_rendered_as_of_its_read(api: Api) -> None:
    """Its `Log-Id`, its link and its epoch are those of its records, whatever came since."""
    for number in range(3):
        await api.append(number)
    partition, exchange = partition_of(api), exchange_of(api)
    log_id = partition.log_id
    call = ReadCall(OffsetSpec(0), query=b"")
    found = await find(exchange, partition, call, 0)
    await replace_end(api)
    assert partition.log_id != log_id
    answer = await records_answer(exchange, partition, call, found, b"application/json")
    headers = dict(answer.headers)
    assert headers[b"log-id"].decode() == log_id
    assert headers[b"log-leader-epoch"] == b"0"
    assert log_id.encode() in headers[b"link"]
    exchange.close()


async def test_a_tail_that_names_a_log_is_not_of_another(api: Api) -> None:
    """Its first page decides which log it follows; then it follows no other."""
    for number in range(3):
        await api.append(number)
    partition = partition_of(api)
    call = ReadCall(OffsetSpec(2), log_id=partition.log_id)
    exchange = exchange_of(api)
    session = await open_tail(exchange, partition, call)
    log_id = partition.log_id
    await replace_end(api)
    assert dict(session.headers())[b"log-id"].decode() == log_id
    exchange.close()
    exchange = exchange_of(api)
    with pytest.raises(LogReplaced):
        await open_tail(exchange, partition, call)
    exchange.close()


async def test_a_receipt_has_the_offsets_of_the_log_it_names(api: Api) -> None:
    """After a truncation the present offsets are those of a log without the record."""
    for number in range(3):
        await api.append(number)
    partition = partition_of(api)
    appended = api.log().append(new_batch(1))
    await replace_end(api)
    head = receipt_head(partition, appended, marks_of(partition, appended), b"records")
    assert set(re.findall(rb"log_id=([^&>\r]+)", head)) == {f"{partition.topic_id}.0".encode()}
    assert b"log-leader-epoch: 0\r\n" in head
    body = receipt_body(partition, appended, marks_of(partition, appended), "all")
    assert b'"log_end_offset":%d' % appended.watermarks.log_end_offset in body


async def test_offsets_and_epoch_change_together(api: Api) -> None:
    """What a look-up found is said of the log in which it was looked up."""
    for number in range(3):
        await api.append(number)
    partition = partition_of(api)
    before = partition.watermarks
    await replace_end(api)
    assert (before.leader_epoch, partition.watermarks.leader_epoch) == (0, 1)
    headers = dict(known_offsets(partition).headers)
    assert headers[b"log-id"] == f"{partition.topic_id}.1".encode()
    answer = await get_offset_at(exchange_of(api), partition, "latest")
    assert dict(answer.headers)[b"log-leader-epoch"] == b"1"
    page = (await api.client.get(RECORDS)).json()
    assert page["leader_epoch"] == 1
