"""Ingest: an address for a sender, a profile, and a delivery that is signed in the page."""

import base64
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.browser import Console

pytestmark = pytest.mark.needs("chromium", "console")

SECRET = "a long random text"
WHSEC = "whsec_" + base64.b64encode(bytes(range(24))).decode()
PROFILE = "/v1/topics/hooks/ingest-profile"


@pytest.fixture(autouse=True)
def hooks(console: Console, client: httpx.Client) -> Iterator[None]:
    """The topic of these tests; the browser reports refusals, but not that there is no profile."""
    client.put("/v1/topics/hooks", json={}).raise_for_status()
    yield
    statuses = ("status of 401", "status of 422", "status of 400")
    console.errors[:] = [one for one in console.errors if not any(x in one for x in statuses)]


def records(client: httpx.Client) -> list[dict[str, Any]]:
    page = client.get("/v1/topics/hooks/partitions/0/records").json()
    found: list[dict[str, Any]] = page["records"]
    return found


def test_a_profile_is_made_and_a_signed_delivery_is_stored(
    console: Console, client: httpx.Client
) -> None:
    """The key comes from the body; the secret is never shown again."""
    console.open("topics/hooks/ingest")
    console.page.get_by_label("Key", exact=True).fill("/who")
    console.page.get_by_label("Signature").select_option("github")
    console.page.get_by_label("Secrets, one a line").fill(SECRET)
    console.button("Save profile").click()
    console.text("1 stored and never shown").wait_for()
    stored = client.get(PROFILE).json()
    assert stored["signature"]["scheme"] == "github"
    assert SECRET not in console.page.content()
    console.page.get_by_label("The sender's secret").fill(SECRET)
    console.page.get_by_label("Body", exact=True).fill('{"who": "me"}')
    console.button("Sign and send").click()
    console.page.get_by_role("link", name="partition 0, offset 0").wait_for()
    [record] = records(client)
    assert (record["key"], record["value"]) == ("me", {"who": "me"})
    console.page.get_by_role("region", name="Deliveries").get_by_text("me", exact=True).wait_for()
    expect(console.button("Send the same again")).to_be_enabled()


@pytest.mark.parametrize(
    ("scheme", "secret"),
    [("standard-webhooks", WHSEC), ("stripe", SECRET), ("slack", SECRET), ("hmac", SECRET)],
)
def test_each_scheme_is_signed_as_the_service_verifies_it(
    console: Console, client: httpx.Client, scheme: str, secret: str
) -> None:
    """Computed by the browser, accepted by the service; a wrong secret is refused."""
    signature: dict[str, Any] = {"scheme": scheme, "secrets": [secret]}
    if scheme == "hmac":
        form = {"header": "x-sig", "algorithm": "sha512", "encoding": "base64", "prefix": "v="}
        signature |= form
    client.put(PROFILE, json={"signature": signature}).raise_for_status()
    console.open("topics/hooks/ingest")
    console.page.get_by_label("The sender's secret").fill(secret)
    console.button("Sign and send").click()
    console.page.get_by_role("link", name="partition 0, offset 0").wait_for()
    wrong = secret[:-2] + ("AA" if scheme == "standard-webhooks" else "??")
    console.page.get_by_label("The sender's secret").fill(wrong)
    console.button("Sign and send").click()
    console.text("invalid_signature").wait_for()
    assert len(records(client)) == 1


def test_an_address_with_a_token_is_shown_once(console: Console, client: httpx.Client) -> None:
    """A sender that can only be given an address posts to it, until it is revoked."""
    console.open("topics/hooks/ingest")
    console.button("Make an address with a token").click()
    address = console.page.locator(".note .ingest-url code").inner_text()
    assert address.startswith(f"{console.url}/v1/topics/hooks/ingest/")
    plain = {"content-type": "text/plain"}
    assert client.post(address, content=b"plain", headers=plain).status_code == 200
    console.page.reload()
    console.page.get_by_role("list", name="Tokens").get_by_role("listitem").wait_for()
    assert address not in console.page.content()
    console.button("Revoke", exact=False).click()
    assert client.post(address, content=b"plain", headers=plain).status_code == 200  # not yet
    console.button("Revoke it").click()
    tokens = console.page.get_by_role("list", name="Tokens").get_by_role("listitem")
    tokens.wait_for(state="hidden")
    assert client.post(address, content=b"plain", headers=plain).status_code == 401


def test_a_delivery_that_the_service_refuses_is_explained(
    console: Console, client: httpx.Client
) -> None:
    """What is wrong with the body, as the problem document says it; nothing is stored."""
    console.open("topics/hooks/ingest")
    console.page.get_by_label("Body", exact=True).fill("not JSON")
    console.button("Send", exact=True).click()
    console.page.get_by_role("alert").wait_for()
    assert records(client) == []


def test_a_profile_goes_when_the_topic_was_typed(console: Console, client: httpx.Client) -> None:
    """Its secrets cannot be had back: one click is not enough."""
    signature = {"scheme": "github", "secrets": [SECRET]}
    client.put(PROFILE, json={"signature": signature}).raise_for_status()
    console.open("topics/hooks/ingest")
    console.button("Delete profile").click()
    confirm = console.page.get_by_role("dialog").get_by_role("button", name="Delete profile")
    expect(confirm).to_be_disabled()
    console.page.get_by_label("Type the topic's name").fill("hooks")
    assert client.get(PROFILE).status_code == 200
    confirm.click()
    console.page.get_by_role("dialog").wait_for(state="hidden")
    assert client.get(PROFILE).status_code == 404


def test_why_a_delivery_did_not_arrive_is_told(console: Console, client: httpx.Client) -> None:
    """By topic, with reason, time and what the sender was told, the newest first."""
    signature = {"scheme": "github", "secrets": [SECRET]}
    client.put(PROFILE, json={"signature": signature}).raise_for_status()
    client.post("/v1/topics/hooks/ingest", content=b"{}")
    client.post(
        "/v1/topics/hooks/ingest",
        content=b"{}",
        headers={"x-hub-signature-256": f"sha256={'0' * 64}"},
    )
    console.open("topics/hooks/ingest")
    rows = console.page.get_by_role("region", name="Refusals").locator("tbody tr")
    rows.nth(1).wait_for()
    wrong, missing = (row.locator("td").all_inner_texts() for row in rows.all())
    assert (wrong[1], missing[1]) == ("signature mismatch", "signature missing")
    assert (wrong[2], missing[2]) == ("401", "401")
    assert "X-Hub-Signature-256" in missing[3]
