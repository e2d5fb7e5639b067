"""Each sender of `docs/ingest/webhooks.md`: its profile is taken, and what it signs is stored."""

import json
import re
from typing import Any

import pytest

from tests.docs.sender_pages import FOLDER
from tests.support.service import Api
from tests.support.webhooks import OF_THE_PAGE

pytestmark = pytest.mark.anyio

ROWS = dict(
    re.findall(r"^\| ([^|]+) \| `(\{.*?\})`", (FOLDER / "webhooks.md").read_text(), re.MULTILINE)
)
INGEST = "/v1/topics/events/ingest"


def profile_of(sender: str, secret: str) -> dict[str, Any]:
    """The profile of the page with the secret in its place."""
    profile: dict[str, Any] = json.loads(ROWS[sender].replace("…", secret))
    return profile


def test_the_table_names_each_sender_once() -> None:
    """A row that nothing signs would be a claim."""
    assert ROWS.keys() == OF_THE_PAGE.keys()


@pytest.mark.parametrize("sender", OF_THE_PAGE)
async def test_what_a_sender_signs_is_stored(api: Api, sender: str) -> None:
    """With the profile of the page; the same for another body is refused."""
    secret, sign = OF_THE_PAGE[sender]
    profile = profile_of(sender, secret)
    answer = await api.client.put("/v1/topics/events/ingest-profile", json=profile)
    assert answer.status_code == 201, answer.text
    body = b'[{"id": "evt_1"}]' if profile.get("split") == "array" else b'{"id": "evt_1"}'
    head = {b"content-type": b"application/json"}
    signed = head | sign(secret, body, api.service.clock.now_ms())
    if sender != "GitLab":
        changed = await api.client.post(INGEST, content=body + b" ", headers=list(signed.items()))
        assert (changed.status_code, changed.json()["code"]) == (401, "invalid_signature")
    unsigned = await api.client.post(INGEST, content=body, headers=list(head.items()))
    assert unsigned.status_code == 401
    answer = await api.client.post(INGEST, content=body, headers=list(signed.items()))
    assert (answer.status_code, answer.json()["count"]) == (200, 1), answer.text
