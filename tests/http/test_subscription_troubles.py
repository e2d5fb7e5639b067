"""Subscriptions in trouble: logs, receivers and documents that are not as they should be."""

import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.operations.subscriptions import push, subscriptions
from app.operations.subscriptions.requests import request_of
from engine.errors import CorruptCheckpoint
from tests.support.certificates import Authority
from tests.support.fake_kafka import eventually
from tests.support.receiver import Receiver, receiving, status
from tests.support.service import Api, running
from tests.support.subscriptions import (
    LOOPBACK,
    SECRETS,
    URL,
    committed,
    put,
    until_committed,
    values,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """A service that may send to this machine, and a topic of two partitions."""
    async with running(tmp_path, subscription_hosts=LOOPBACK) as api:
        await api.create(partitions=2)
        yield api


async def test_records_that_were_deleted_first_are_passed_over(
    api: Api, receiver: Receiver
) -> None:
    """The subscription goes on at the log start."""
    await put(api, receiver.url, paused=True)
    await api.append(*range(5))
    path = "/v1/topics/events/partitions/0/delete-records"
    await api.client.post(path, json={"before_offset": 3})
    await put(api, receiver.url, 200)
    await until_committed(api, 5)
    assert values(receiver.requests[0])[-1] == 4
    assert len(receiver.requests) == 1


async def test_trouble_with_the_log_is_told_and_tried_again(
    api: Api, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dead-letter topic was deleted: nothing is passed over until it is there again."""
    monkeypatch.setattr(push, "TROUBLE_PAUSE_S", 0.01)
    await api.create("dead")
    retry = {"initial_ms": 10, "attempts": 1}
    await put(api, receiver.url, retry=retry, dead_letter_topic="dead")
    await api.client.delete("/v1/topics/dead")
    receiver.answers.append(status("500 No"))
    await api.append(1)
    pushes = api.service.subscriptions.all()["s"].pushes
    told = "topic 'dead' does not exist"
    await eventually(
        lambda: any(one.last and told in (one.last.problem or "") for one in pushes.values())
    )
    assert await committed(api) == 0
    await api.create("dead")
    await until_committed(api, 1)


async def test_partitions_that_are_added_are_pushed_from_their_start(
    api: Api, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever `start` says; those of a deleted topic end."""
    monkeypatch.setattr(subscriptions, "LOOK_S", 0.01)
    await api.create("other")
    await put(api, receiver.url, start="latest", topics=["events", "other"])
    merge = {"content-type": "application/merge-patch+json"}
    await api.client.patch("/v1/topics/events", content=b'{"partitions":3}', headers=merge)
    await api.append(7, path="/v1/topics/events/partitions/2/records")
    assert values((await receiver.until(1))[0]) == [7]
    await api.client.delete("/v1/topics/other")
    pushes = api.service.subscriptions.all()["s"].pushes
    await eventually(lambda: {place.topic for place in pushes} == {"events"})
    await api.client.delete("/v1/topics/events")
    await eventually(lambda: not pushes)


async def test_nobody_who_listens_is_a_failure_like_others(api: Api, receiver: Receiver) -> None:
    """Refused connections are tried again."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
    await put(api, url)
    await api.append(1)
    one = api.service.subscriptions.all()["s"]
    await eventually(lambda: any(push.failures for push in one.pushes.values()))
    await put(api, receiver.url, 200)
    await until_committed(api, 1)


async def test_a_receiver_with_a_certificate_of_its_own_is_trusted_by_its_ca(
    tmp_path: Path, anyio_backend: str
) -> None:
    """`subscription_ca_file`; without it the connection is refused."""
    authority = Authority(tmp_path)
    pair = authority.vouch("receiver")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert, pair.key)
    async with receiving(context) as receiver:
        url = receiver.url.replace("http:", "https:")
        async with running(tmp_path / "1", subscription_hosts=LOOPBACK) as api:
            await api.create()
            await put(api, url)
            failed = (await api.client.post(f"{URL}/test")).json()
            assert "CERTIFICATE_VERIFY_FAILED" in failed["problem"]
        async with running(
            tmp_path / "2", subscription_hosts=LOOPBACK, subscription_ca_file=authority.path
        ) as api:
            await api.create()
            await put(api, url)
            assert (await api.client.post(f"{URL}/test")).json()["status"] == 200


async def test_a_damaged_document_is_named(tmp_path: Path, receiver: Receiver) -> None:
    """A start says which subscription, and nothing of its secrets."""
    async with running(tmp_path, subscription_hosts=LOOPBACK) as api:
        options = {"topics": ["events"], "url": "no", "signature": {"secrets": SECRETS}}
        await api.service.store.documents.change({"subscription:s": {"options": options}})
    with pytest.raises(CorruptCheckpoint) as damaged:
        async with running(tmp_path, subscription_hosts=LOOPBACK):
            pass
    assert "subscription:s" in str(damaged.value)
    assert SECRETS[0] not in str(damaged.value)


async def test_texts_and_bytes_are_events_too(api: Api, receiver: Receiver) -> None:
    """As CloudEvents has them: text, or base64; a time outside the calendar is left out."""
    await put(api, receiver.url, format="cloudevents")
    await api.append("AP8=", value_encoding="base64")
    await api.append("plain", value_encoding="utf8", key="AP8=", key_encoding="base64")
    await until_committed(api, 2)
    events = [one for request in receiver.requests for one in json.loads(request.body)]
    assert events[0]["data_base64"] == "AP8="
    assert (events[1]["data"], events[1]["datacontenttype"]) == ("plain", "text/plain")
    assert "subject" not in events[1]


async def test_a_fault_of_ours_is_logged_and_does_not_end_the_subscription(
    api: Api, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It begins again where the group is."""
    monkeypatch.setattr(subscriptions, "AGAIN_S", 0.01)
    faults = [ValueError("a fault of ours")]

    def faulty(*arguments: Any, **named: Any) -> Any:
        if faults:
            raise faults.pop()
        return request_of(*arguments, **named)

    monkeypatch.setattr("app.operations.subscriptions.push.request_of", faulty)
    await put(api, receiver.url)
    await api.append(1)
    await until_committed(api, 1)
    assert "a fault of ours" in caplog.text
