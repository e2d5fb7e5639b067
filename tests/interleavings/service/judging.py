"""Whether an answer was true at one moment: its records, offsets, log id, links and tag."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from tests.interleavings.service.questions import Answer, Question, Said, said_by
from tests.interleavings.service.truth import State, Truth

REFUSALS: Final = {
    "topic_not_found",
    "partition_not_found",
    "log_replaced",
    "offset_below_log_start",
    "offset_beyond_log_end",
    "segment_not_found",
    "policy_violation",
    40401,  # no such topic, in REST v2
    40402,  # no such partition
    40002,  # an offset outside of the log
}
"""What a reader may be told because of a change beside it."""


def judge(truth: Truth, question: Question, answer: Answer) -> None:
    """Fail unless what is said was so at one of the moments that the truth has seen."""
    if answer.status in {304, 204}:
        return
    assert answer.status < 500, answer.status
    if answer.status >= 300:
        problem = json.loads(answer.body or b"{}")
        code = problem.get("code", problem.get("error_code"))
        assert code is None or code in REFUSALS, f"{answer.status}: {code}"
        return
    if not (answer.is_whole or question.is_endless):
        ensure_had_to_break_off(truth, question)
        return
    for said in said_by(question, answer):
        if question.named is not None:
            assert said.marks.get("log_id") == question.named, f"of {said.marks.get('log_id')}"
        ensure_of_a_moment(truth.states, said)
        ensure_stored(truth, said)
        ensure_consistent(question, said)
    ensure_link(answer)


def ensure_had_to_break_off(truth: Truth, question: Question) -> None:
    """Only a streamed answer may end early, and only if the log changed: its client notices."""
    assert "stream=true" in question.url, "an answer without an end"
    assert truth.log is None or len(truth.states) > 1, "nothing changed"


def ensure_of_a_moment(states: Sequence[State], said: Said) -> None:
    """All marks together are those of one state."""
    fits = [one for one in states if said.marks.items() <= one.items()]
    assert fits, f"at no moment: {said.marks}, but {states}"


def ensure_stored(truth: Truth, said: Said) -> None:
    """The records are those of the log that is named, each of its offset, and none is left out."""
    log_id = said.marks.get("log_id")
    logs = truth.logs if log_id is None else {str(log_id): truth.logs[str(log_id)]}
    fits = [one for one, known in logs.items() if set(said.records) <= set(known.items())]
    assert fits, f"records {said.records} of {log_id}, but {logs}"
    if said.next_offset is None or truth.cleaned:
        return
    start = said.start
    if start is None:
        return
    assert any(
        {at for at in logs[one] if start <= at < said.next_offset}
        <= {at for at, _ in said.records} | _below_a_start(truth, one)
        for one in fits
    ), f"records are left out of {said.records} from {start} to {said.next_offset}: {logs}"


def _below_a_start(truth: Truth, log_id: str) -> set[int]:
    """The offsets that were deleted at some moment."""
    starts = [one["log_start_offset"] for one in truth.states if one["log_id"] == log_id]
    return {at for at in truth.logs[log_id] if at < max(int(str(one)) for one in starts)}


def ensure_consistent(question: Question, said: Said) -> None:
    """What only some answers say agrees with the rest of them."""
    facts, marks = said.facts, said.marks
    match question.operation:
        case "listSegments":
            assert facts["segments"][-1]["next_offset"] == marks["log_end_offset"], facts
            assert facts["segments"][0]["base_offset"] <= int(str(marks["log_start_offset"]))
        case "getOffsetAt" if "timestamp=latest" in question.url:
            assert facts["offset"] == marks["high_watermark"]
        case "getOffsetAt" if "timestamp=earliest" in question.url:
            assert facts["offset"] == marks["log_start_offset"]
        case "getGroupLag" if facts.get("lag") is not None:
            start = max(facts["offset"], facts["log_start_offset"])
            assert facts["lag"] == max(0, facts["end_offset"] - start)  # the log may have been cut


def ensure_link(answer: Answer) -> None:
    """The next page is of the same log, from where this one ends."""
    link, log_id = answer.headers.get("link", ""), answer.headers.get("log-id")
    if "log_id=" in link:
        assert re.findall(r"[?&]log_id=([^&>]+)", link)[-1] == log_id, link
    if "log-next-offset" in answer.headers and "offset=" in link:
        assert f"offset={answer.headers['log-next-offset']}" in link, link


def ensure_equal_tags(
    seen: dict[tuple[str, str], bytes], question: Question, answer: Answer
) -> None:
    """Equal tags of one URL and media type mean equal bytes."""
    tag = answer.headers.get("etag")
    if tag is None or tag.startswith("W/") or answer.status != 200 or question.method != "GET":
        return
    if question.operation not in {"readRecords", "readBatches", "downloadSegment"}:
        return  # the tag of a log's end is for conditions
    key = (question.url + str(question.headers), tag)
    assert seen.setdefault(key, answer.body) == answer.body, f"two bodies with {tag}"


def told(answer: Answer) -> Mapping[str, object]:
    """Return what to show of an answer that was wrong."""
    return {"status": answer.status, **answer.headers, "body": answer.body[:600]}
