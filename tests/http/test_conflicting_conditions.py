"""Several conditions in one request: all must hold, even if they contradict each other."""

from itertools import product

import pytest

from tests.support.service import OFFSETS, RECORDS, Api

pytestmark = pytest.mark.anyio

ONE = {"records": [{"value": 1}]}
CURSOR = "/v1/groups/lake/offsets/events/0"


async def test_an_append_needs_all_of_its_conditions(api: Api) -> None:
    """If-Match and Expected-Offset may have different sources.

    Both must hold for an append (A9).
    """
    tags = {"before": (await api.client.get(OFFSETS)).headers["etag"], "ahead": '"0-2-00000000"'}
    await api.append("first")
    tags["now"] = (await api.client.get(OFFSETS)).headers["etag"]
    for tag, offset in product(tags, range(3)):
        if (tag, offset) == ("now", 1):
            continue
        headers = {"if-match": tags[tag], "expected-offset": str(offset)}
        answer = await api.client.post(RECORDS, json=ONE, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (412, "precondition_failed"), headers
        assert (answer.json()["etag"], answer.json()["log_end_offset"]) == (tags["now"], 1)
    headers = {"if-match": tags["now"], "expected-offset": "1"}
    assert (await api.client.post(RECORDS, json=ONE, headers=headers)).status_code == 201
    assert api.log().watermarks.log_end_offset == 2


@pytest.mark.parametrize("condition", ["expected-offset", "if-match"])
async def test_a_repetition_is_not_refused_for_what_the_first_has_done(
    api: Api, condition: str
) -> None:
    """A retry of a conditional append gets the first response, not 412 (A9)."""
    tag = (await api.client.get(OFFSETS)).headers["etag"]
    producer = {"producer-id": "7", "producer-epoch": "0"}
    headers = producer | {condition: {"expected-offset": "0", "if-match": tag}[condition]}
    answers = [
        await api.client.post(RECORDS, json=ONE, headers=headers | {"producer-sequence": sequence})
        for sequence in ("0", "0", "1")
    ]
    assert [answer.status_code for answer in answers] == [201, 200, 412]
    assert (answers[1].json()["base_offset"], answers[1].json()["duplicate"]) == (0, True)
    assert api.log().watermarks.log_end_offset == 1


async def test_what_must_and_must_not_be_there_is_never_stored(api: Api) -> None:
    """If-Match: * with If-None-Match: * holds for no cursor, stored or not (G2)."""
    both = {"if-match": "*", "if-none-match": "*"}
    for status in (404, 200):
        answer = await api.client.put(CURSOR, json={"offset": 0}, headers=both)
        assert (answer.status_code, answer.json()["code"]) == (412, "precondition_failed")
        assert (await api.client.get(CURSOR)).status_code == status
        await api.client.put(CURSOR, json={"offset": 0})
        if status == 200:
            refused = await api.client.delete(CURSOR, headers=both)
            assert refused.status_code == 412


async def test_a_condition_and_a_range_are_judged_in_the_order_of_http(api: Api) -> None:
    """If the client has the whole, it gets 304 for any range.

    A range of another version is not sent.
    """
    await api.append("first", "second")
    log_id = api.log().reader.log_id
    path = RECORDS.replace("/records", f"/batches?offset=0&end_offset=1&log_id={log_id}")
    whole = await api.client.get(path)
    tag = whole.headers["etag"]
    asked = {"range": "bytes=0-3", "if-range": '"other"', "if-none-match": tag}
    assert (await api.client.get(path, headers=asked)).status_code == 304
    del asked["if-none-match"]
    answer = await api.client.get(path, headers=asked)
    assert (answer.status_code, answer.content) == (200, whole.content)
    part = await api.client.get(path, headers={**asked, "if-range": tag, "if-none-match": '"x"'})
    assert (part.status_code, part.content) == (206, whole.content[:4])
