"""Every response about one log has its log id and offsets, from one snapshot."""

import pytest

from tests.support.builders import new_batch
from tests.support.service import BATCHES, OFFSETS, RAW, RECORDS, Api

pytestmark = pytest.mark.anyio

LOG = "/v1/topics/events/partitions/0"
MARKS = {
    "log_start_offset": "log-start-offset",
    "high_watermark": "log-high-watermark",
    "last_stable_offset": "log-last-stable-offset",
    "log_end_offset": "log-end-offset",
}
END = {"producer_id": 7, "producer_epoch": 0, "action": "commit"}

ABOUT_ONE_LOG = {
    "appendRecords": ("POST", RECORDS, {"records": [{"value": 1}]}),
    "readRecords": ("GET", RECORDS, None),
    "readBatches": ("GET", BATCHES, None),
    "getOffsets": ("GET", OFFSETS, None),
    "getOffsetAt": ("GET", f"{LOG}/offset-at?timestamp=latest", None),
    "getPartition": ("GET", LOG, None),
    "listSegments": ("GET", f"{LOG}/segments", None),
    "downloadSegment": ("GET", f"{LOG}/segments/0/log", None),
    "listProducers": ("GET", f"{LOG}/producers", None),
    "getAppendOutcome": ("GET", f"{LOG}/producers/7/appends/0", None),
    "getMove": ("GET", f"{LOG}/move", None),
    "endTransaction": ("POST", f"{LOG}/transactions", END),
    "rollSegment": ("POST", f"{LOG}/roll", None),
    "flushLog": ("POST", f"{LOG}/flush", None),
    "runRetention": ("POST", f"{LOG}/retention", None),
    "deleteRecords": ("POST", f"{LOG}/delete-records", {"before_offset": 1}),
    "truncateLog": ("POST", f"{LOG}/truncate", {"to_offset": 2}),
}
WITHOUT_MARKS_IN_THE_BODY = {"readBatches", "downloadSegment", "getOffsetAt", "appendRecords"}


@pytest.mark.parametrize("operation", ABOUT_ONE_LOG)
async def test_an_answer_says_where_the_log_is(api: Api, operation: str) -> None:
    """In headers always; in a JSON body with the same numbers."""
    await api.append(1, 2)
    batch = new_batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    method, path, body = ABOUT_ONE_LOG[operation]
    etag = (await api.client.get(OFFSETS)).headers["etag"]
    condition = {"if-match": etag} if operation == "truncateLog" else {}
    answer = await api.client.request(method, path, json=body, headers=condition)
    assert answer.is_success, answer.text
    assert answer.headers["log-id"] == api.log().reader.log_id
    assert answer.headers["log-leader-epoch"] == str(api.log().reader.leader_epoch)
    assert {"log-next-offset", *MARKS.values()} <= answer.headers.keys()
    if operation not in WITHOUT_MARKS_IN_THE_BODY:
        shown = {header: str(answer.json()[name]) for name, header in MARKS.items()}
        assert shown.items() <= dict(answer.headers).items()


@pytest.mark.parametrize(
    "path",
    [
        f"{LOG}/producers/9/appends/0",
        f"{LOG}/segments/7/log",
        "/v1/groups/none/offsets",
        "/v1/groups/none/offsets/events/0",
        "/v1/topics/none",
        "/v1/topics/events/partitions/7",
    ],
)
async def test_what_is_not_found_has_kafkas_number(api: Api, path: str) -> None:
    """Topic, partition, segment, producer and group alike: 3."""
    answer = await api.client.get(path)
    assert (answer.status_code, answer.json()["kafka_error_code"]) == (404, 3)
    assert answer.json()["kafka_error"] == "UNKNOWN_TOPIC_OR_PARTITION"
