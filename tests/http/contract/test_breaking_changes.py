"""Released operations stay: no change of the document breaks a client of the last release."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.http.contract.breaking import breaking_changes

FOLDER = Path(__file__).parents[3] / "openapi"
CURRENT = json.loads((FOLDER / "openapi.json").read_text())
LOG = "/v1/topics/{topic}/partitions/{partition}"
RECORDS = f"{LOG}/records"
TRANSACTIONS = f"{LOG}/transactions 200"


def changed(path: str, value: Any) -> dict[str, Any]:
    """The document with one place replaced, or taken out if the value is None."""
    document: dict[str, Any] = deepcopy(CURRENT)
    place = document
    *steps, last = path.split("|")
    for step in steps:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


MARKS = (
    "log_start_offset",
    "high_watermark",
    "last_stable_offset",
    "log_end_offset",
    "leader_epoch",
)
CHANGED = {
    # Booleans are `true` and `false` everywhere; what a client of the release sends is still
    # accepted.
    *(f"GET {LOG}/{kind} explain was string and is boolean" for kind in ("records", "batches")),
    # An immutable page must not contain the present watermarks: one of two equal ETags showed what
    # had changed since.
    *(
        f"GET {RECORDS} 200 answers application/json.{mark} is now not always there"
        for mark in MARKS
    ),
    # Only the answer to a repeated request, which was 409, can have null there.
    f"POST {TRANSACTIONS} answers application/json.first_offset was integer and is integer or null",
    # It made two schemas of one response. getOffsetAt replaced it; the service still accepts it,
    # and tests/http/test_offsets.py checks that.
    f"GET {LOG}/offsets no longer takes the query parameter timestamp",
    # A Kafka cluster does not tell these; a service with its own data directories always does.
    *(
        f"GET /v1/{path} 200 answers application/json.{field} was integer and is integer or null"
        for path, field in (
            ("topics/{topic}/partitions", "partitions[].segments"),
            ("groups/{group}/offsets", "offsets[].commit_timestamp"),
        )
    ),
    # Keys are in the log now, and nothing can be added to a raw batch: 400, see protocol rule I6.
    f"POST {LOG}/batches no longer takes the header parameter idempotency-key",
}


def test_nothing_that_was_released_is_gone() -> None:
    """A client made from the released document works with the present service."""
    released = json.loads((FOLDER / "released.json").read_text())
    assert set(breaking_changes(released, CURRENT)) == CHANGED


def test_a_document_does_not_break_itself() -> None:
    """Without a change there is none to report."""
    assert breaking_changes(CURRENT, CURRENT) == []


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (f"paths|{RECORDS}|post", None, f"POST {RECORDS} is gone"),
        (
            f"paths|{RECORDS}|post|operationId",
            "other",
            f"POST {RECORDS} is now called other, not appendRecords",
        ),
        (f"paths|{RECORDS}|get|responses|200", None, f"GET {RECORDS} no longer answers 200"),
        (
            f"paths|{RECORDS}|get|parameters",
            [],
            f"GET {RECORDS} no longer takes the query parameter offset",
        ),
        (
            "components|schemas|AppendReceipt|properties|base_offset",
            None,
            "no longer has base_offset",
        ),
        (
            "components|schemas|AppendReceipt|properties|base_offset",
            {"type": "string"},
            "base_offset was integer and is string",
        ),
        ("components|schemas|PutTopic|required", ["partitions", "config"], "is now demanded"),
        ("components|schemas|AppendReceipt|required", ["topic"], "is now not always there"),
        (
            "components|schemas|PutTopic|properties|partitions|maximum",
            1,
            "partitions has a tighter maximum: 1",
        ),
    ],
)
def test_a_breaking_change_is_reported(path: str, value: Any, told: str) -> None:
    """Each kind of loss is found, with its place."""
    assert any(told in change for change in breaking_changes(CURRENT, changed(path, value)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("paths|/v1/new", {}),
        ("components|schemas|AppendReceipt|properties|more", {"type": "string"}),
        ("components|schemas|PutTopic|required", []),
    ],
)
def test_a_change_that_only_adds_is_not_breaking(path: str, value: Any) -> None:
    """New paths, new members of responses and fewer requirements are allowed."""
    assert breaking_changes(CURRENT, changed(path, value)) == []
