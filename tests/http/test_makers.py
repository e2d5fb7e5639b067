"""What one key makes leaves room for the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.credentials import bearer, create_key
from tests.support.service import Api, open_service
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def guarded(directory: Path, **settings: Any) -> AsyncIterator[tuple[Api, dict[str, Any]]]:
    """A service with keys; the client has those of an admin, the headers are another's."""
    root = create_key(directory, "root", "admin:*", "append:*", "read:*")
    mallory = create_key(directory, "mallory", "read:pub", "admin:mine-*")
    async with (
        open_service(directory, **settings) as service,
        wired(service) as client,
    ):
        client.headers.update(bearer(root))
        api = Api(service, client)
        await api.create("pub")
        await api.create("events")
        yield api, bearer(mallory)


async def test_one_key_cannot_make_all_groups(tmp_path: Path) -> None:
    """With the right to read one topic only; what it has still moves, and others make theirs."""
    async with guarded(tmp_path, max_groups=20, max_group_offsets=100) as (api, mallory):

        async def put(group: str, topic: str, headers: dict[str, Any] | None = None) -> Any:
            url = f"/v1/groups/{group}/offsets/{topic}/0"
            return await api.client.put(url, json={"offset": 0}, headers=headers)

        taken = [(await put(f"m{n}", "pub", mallory)).status_code for n in range(20)]
        assert taken == [201] * 10 + [422] * 10
        refused = (await put("m20", "pub", mallory)).json()
        assert (refused["code"], refused["limit"]) == ("policy_violation", "max_share_percent")
        assert (await put("m0", "pub", mallory)).status_code == 200
        assert (await put("honest", "events")).status_code == 201
        for number in range(2):  # the share is smaller now, because another has made one
            await api.client.delete(f"/v1/groups/m{number}/offsets/pub/0", headers=mallory)
        assert (await put("m21", "pub", mallory)).status_code == 201


async def test_one_key_cannot_make_all_offsets(tmp_path: Path) -> None:
    """In few groups, with many partitions."""
    async with guarded(tmp_path, max_group_offsets=20) as (api, mallory):
        await api.client.patch("/v1/topics/pub", json={"partitions": 30})
        codes = []
        for number in range(20):
            url = f"/v1/groups/one/offsets/pub/{number}"
            answer = await api.client.put(url, json={"offset": 0}, headers=mallory)
            codes.append(answer.status_code)
        assert codes == [201] * 10 + [422] * 10


async def test_one_key_cannot_make_all_topics(tmp_path: Path) -> None:
    """With the right to make those with a prefix; deleting one makes room."""
    async with guarded(tmp_path, max_topics=22) as (api, mallory):
        codes = []
        for number in range(20):
            url = f"/v1/topics/mine-{number}"
            codes.append((await api.client.put(url, json={}, headers=mallory)).status_code)
        made = codes.count(201)
        assert codes == [201] * made + [422] * (20 - made)
        assert 8 <= made <= 11
        assert (await api.client.put("/v1/topics/mine-0", json={}, headers=mallory)).is_success
        await api.create("another")
        await api.client.delete("/v1/topics/mine-0", headers=mallory)
        await api.client.delete("/v1/topics/mine-1", headers=mallory)
        again = await api.client.put("/v1/topics/mine-0", json={}, headers=mallory)
        assert again.status_code == 201
