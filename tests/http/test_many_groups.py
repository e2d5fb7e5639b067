"""Very many groups: no request about all of them holds the event loop."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from app.operations.exchange import Exchange
from app.operations.groups import list_groups
from app.security.principal import anonymous
from app.store.local.group_offsets import LOOKED_AT_TOGETHER
from app.store.port import CursorKey, CursorValue
from tests.support.service import Api, running

pytestmark = pytest.mark.anyio

T = TypeVar("T")


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """A service whose offsets topic has one partition."""
    async with running(tmp_path, offsets_topic_partitions=1) as api:
        await api.create()
        yield api


async def test_many_groups_are_looked_at_in_several_turns(api: Api) -> None:
    """Neither listing groups nor dropping a topic's offsets blocks the loop for all of them."""
    answer = await api.client.put("/v1/groups/lake/offsets/events/0", json={"offset": 0})
    assert answer.status_code == 201
    groups = api.service.groups
    names = [f"group-{number:03}" for number in range(2 * LOOKED_AT_TOGETHER)]
    value = CursorValue(1, -1, "", 5)
    keys = [CursorKey(name, "events", 0) for name in names]
    await asyncio.gather(*(groups.put(key, lambda _: value) for key in keys))
    listing = list_groups(
        Exchange(api.service, {}, caller=anonymous()), page_size=1_000, page_token=None
    )
    turns, listed = steps_of(listing)
    assert (turns, json.loads(bytes(listed.body))["groups"]) == (2, [*names, "lake"])
    turns, _ = steps_of(groups.drop_topic("other"))
    assert turns == 2


def steps_of(work: Coroutine[Any, Any, T]) -> tuple[int, T]:
    """Run to its end what waits for nothing, and return how many turns of the loop it gave."""
    turns = 0
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            return turns, end.value
        turns += 1
