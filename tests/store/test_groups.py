"""Group offsets of every side: durable, judged by what they replace, gone with their topic."""

from pathlib import Path
from typing import NoReturn

import pytest

from app.errors import CursorNotFound
from app.store.port import Cursor, CursorKey, CursorValue
from tests.store.conftest import OpenSide, Side

pytestmark = pytest.mark.anyio

KEY = CursorKey("lake", "events", 0)


class Refused(Exception):
    """What a test's judge raises."""


async def put(side: Side, key: CursorKey, offset: int) -> tuple[Cursor, bool]:
    """Store an offset, whatever was there."""
    await side.partition(key.topic)
    return await side.store.groups.put(key, lambda _: CursorValue(offset, 3, "m", 5))


def timeless(value: CursorValue) -> CursorValue:
    """A stored offset without the time of its commit: Kafka does not show it."""
    return value._replace(commit_timestamp=5)


async def test_an_offset_is_stored_and_replaced(side: Side) -> None:
    """Each change is judged by the offset that it replaces."""
    groups, seen = side.store.groups, list[Cursor | None]()
    with pytest.raises(CursorNotFound):
        await groups.get(KEY)
    first, is_first = await put(side, KEY, 1)
    assert (timeless(first.value), is_first) == (CursorValue(1, 3, "m", 5), True)
    assert timeless((await groups.get(KEY)).value) == timeless(first.value)

    def decide(before: Cursor | None) -> CursorValue:
        seen.append(before)
        return CursorValue(2)

    second, is_first = await groups.put(KEY, decide)
    assert [one and (timeless(one.value), one.etag) for one in seen] == [
        (timeless(first.value), first.etag)
    ]
    assert (is_first, second.value.offset) == (False, 2)
    assert (first.etag != second.etag) is groups.has_conditions
    assert [(key, value.offset) for key, value in await groups.of_group("lake")] == [(KEY, 2)]


async def test_a_refused_change_changes_nothing(side: Side) -> None:
    """What the judge raises comes out, and the offset stays."""
    groups = side.store.groups
    stored, _ = await put(side, KEY, 1)

    def refuse(_: Cursor | None) -> NoReturn:
        raise Refused

    with pytest.raises(Refused):
        await groups.put(KEY, refuse)
    with pytest.raises(Refused):
        await groups.delete(KEY, refuse)
    assert timeless((await groups.get(KEY)).value) == timeless(stored.value)


async def test_an_offset_is_deleted(side: Side) -> None:
    """Then neither it nor, if it was the last one, its group is there."""
    groups = side.store.groups
    await put(side, KEY, 1)
    await groups.delete(KEY, lambda _: None)
    for gone in (groups.get(KEY), groups.delete(KEY, lambda _: None)):
        with pytest.raises(CursorNotFound):
            await gone
    assert await groups.of_group("lake") == []
    assert await groups.names("", at_most=10, wanted=lambda _: True) == []


async def test_groups_are_named_in_order(side: Side) -> None:
    """Those after a name, as many as asked for, and only with an offset that is wanted."""
    groups = side.store.groups
    for name in "bcad":
        await put(side, CursorKey(name, "other" if name == "c" else "events", 0), 0)
    assert await groups.names("a", at_most=10, wanted=lambda _: True) == ["b", "c", "d"]
    assert await groups.names("", at_most=2, wanted=lambda _: True) == ["a", "b"]
    mine = await groups.names("", at_most=10, wanted=lambda key: key.topic == "events")
    assert mine == ["a", "b", "d"]


async def test_a_deleted_topic_takes_its_offsets_along(side: Side) -> None:
    """Those of other topics stay."""
    groups, kept = side.store.groups, CursorKey("lake", "other", 0)
    await put(side, KEY, 1)
    stored, _ = await put(side, kept, 2)
    await side.store.topics.delete("events")
    await groups.drop_topic("events")
    left = [(key, timeless(value)) for key, value in await groups.of_group("lake")]
    assert left == [(kept, timeless(stored.value))]


async def test_offsets_are_there_after_a_start(open_side: OpenSide, tmp_path: Path) -> None:
    """What was stored has its ETag still, and what was deleted stays deleted."""
    gone = CursorKey("lake", "other", 0)
    async with open_side(tmp_path) as side:
        stored, _ = await put(side, KEY, 1)
        await put(side, gone, 1)
        await side.store.groups.delete(gone, lambda _: None)
    async with open_side(tmp_path) as side:
        again = await side.store.groups.get(KEY)
        assert (timeless(again.value), again.etag) == (timeless(stored.value), stored.etag)
        assert [key for key, _ in await side.store.groups.of_group("lake")] == [KEY]
