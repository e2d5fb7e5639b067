"""Equal tags mean equal bytes: whatever happens between two identical requests."""

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.support.service import RECORDS, Api, running

pytestmark = pytest.mark.anyio

TOPIC = "/v1/topics/events"
LOG = f"{TOPIC}/partitions/0"
SETTINGS: list[dict[str, Any]] = [
    {},
    {"default_fetch_bytes": 150},
    {"max_fetch_bytes": 300},
    {"default_fetch_records": 2},
    {"max_answer_bytes": 1_200},
]
BOUNDS = [
    "",
    "&end_offset=6",
    "&end_offset=3",
    "&max_bytes=200",
    "&max_bytes=1000000",
    "&max_records=2",
    "&max_records=9",
    "&end_offset=latest",
    "&end_offset=6&encoding=base64",
    "&end_offset=6&isolation=read_committed",
]


@dataclass
class Seen:
    """An answer with a tag."""

    tag: str
    body: bytes


async def change(api: Api, random: Random) -> None:
    """Do one thing to the log or to its configuration."""
    number = random.randrange(6)
    if number == 0:
        await api.client.patch(TOPIC, json={"config": {"cleanup.policy": "compact"}})
        await api.client.post(f"{LOG}/compact")
        if random.random() < 0.8:
            await api.client.patch(TOPIC, json={"config": {"cleanup.policy": "delete"}})
    elif number == 1:
        await api.client.post(f"{LOG}/roll")
    elif number == 2:
        end = (await api.client.get(f"{LOG}/offsets")).headers
        cut = {"to_offset": max(0, int(end["log-end-offset"]) - 1)}
        await api.client.post(f"{LOG}/truncate", json=cut, headers={"if-match": end["etag"]})
    else:
        records = [{"key": f"k{random.randrange(2)}", "value": random.random()} for _ in range(3)]
        await api.client.post(RECORDS, json={"records": records})


async def ask(api: Api, url: str, seen: dict[tuple[str, str], Seen]) -> None:
    """Read a page; compare it with an earlier one under the same URL and tag."""
    answer = await api.client.get(url)
    tag = answer.headers.get("etag")
    assert (tag is None) is ("immutable" not in answer.headers["cache-control"])
    if answer.status_code != 200:
        return
    if tag is not None:
        before = seen.setdefault((url, tag), Seen(tag, answer.content))
        assert before.body == answer.content, url
    for (asked, known), earlier in seen.items():
        if asked == url:
            again: httpx.Response = await api.client.get(url, headers={"if-none-match": known})
            if again.status_code == 304:
                assert agree(earlier.body, answer.content), url


def agree(earlier: bytes, now: bytes) -> bool:
    """Whether one of two answers begins with all that the other has.

    A smaller limit of the service may make the present page shorter, and not immutable.
    """
    if not earlier.startswith(b"{"):
        return earlier.startswith(now) or now.startswith(earlier)
    ours, theirs = (json.loads(one)["records"] for one in (earlier, now))
    count = min(len(ours), len(theirs))
    return bool(ours[:count] == theirs[:count])


@pytest.mark.parametrize("seed", range(12))
async def test_equal_tags_mean_equal_bytes(tmp_path: Path, seed: int) -> None:
    """Settings, configuration and the log change between two identical requests.

    Policy delete, compact, delete gave equal tags with other bytes, and so did another
    `default_fetch_bytes` for a page that its URL does not bound.
    """
    random = Random(seed)
    seen: dict[tuple[str, str], Seen] = {}
    found = 0
    for life in range(4):
        settings = random.choice(SETTINGS)
        async with running(tmp_path, **settings) as api:
            if life == 0:
                await api.create()
                for number in range(6):
                    await api.append(number, key=f"k{number % 2}")
            for _ in range(4):
                log_id = api.log().reader.log_id
                for bound in random.sample(BOUNDS, 4):
                    await ask(api, f"{RECORDS}?offset=0&log_id={log_id}{bound}", seen)
                    await ask(api, f"{LOG}/batches?offset=1&log_id={log_id}{bound}", seen)
                await change(api, random)
            found += len(seen)
    assert found, "some pages are immutable"


async def test_only_what_the_url_bounds_is_immutable(tmp_path: Path) -> None:
    """A limit of the service ends the others, and the next start may have another one."""
    async with running(tmp_path, default_fetch_bytes=200, default_fetch_records=2) as api:
        await api.create()
        for number in range(6):
            await api.append(number)
        log_id = api.log().reader.log_id
        for bound, is_immutable in (
            ("", False),
            ("&max_records=5", False),
            ("&max_records=1", True),
            ("&max_bytes=80", True),
            ("&end_offset=1", True),
            ("&end_offset=latest", False),
        ):
            answer = await api.client.get(f"{RECORDS}?offset=0&log_id={log_id}{bound}")
            assert ("immutable" in answer.headers["cache-control"]) is is_immutable, bound
