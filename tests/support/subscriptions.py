"""A subscription `s` of the topic `events`, and how far it is."""

import base64
import json
from typing import Any

from engine.types import TopicPartition
from schemas.subscriptions import Subscription
from tests.support.fake_kafka import eventually
from tests.support.receiver import Received
from tests.support.service import Api

URL = "/v1/subscriptions/s"
LOOPBACK = ("127.0.0.0/8",)
SECRETS = ["whsec_" + base64.b64encode(bytes([n]) * 24).decode() for n in (1, 2)]


async def put(api: Api, url: str, code: int = 201, **more: Any) -> dict[str, Any]:
    body = {"topics": ["events"], "url": url, "start": "earliest", **more}
    body.setdefault("retry", {"initial_ms": 10, "max_ms": 20})
    answer = await api.client.put(URL, json=body)
    assert answer.status_code == code, answer.text
    Subscription.model_validate_json(answer.content)
    shown: dict[str, Any] = answer.json()
    return shown


async def shown(api: Api) -> dict[str, Any]:
    answer = await api.client.get(URL)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def until_state(api: Api, state: str) -> dict[str, Any]:
    subscription = api.service.subscriptions
    await eventually(lambda: subscription.all()["s"].state == state)
    return await shown(api)


async def committed(api: Api, partition: int = 0, group: str = "subscription-s") -> int:
    path = f"/v1/groups/{group}/offsets/events/{partition}"
    return int((await api.client.get(path)).json()["offset"])


async def until_committed(api: Api, offset: int, partition: int = 0) -> None:
    pushes = api.service.subscriptions.all()["s"].pushes
    place = TopicPartition("events", partition)
    await eventually(lambda: place in pushes and pushes[place].committed == offset)
    assert await committed(api, partition) == offset


def values(request: Received) -> list[Any]:
    return [json.loads(line)["value"] for line in request.body.splitlines()]
