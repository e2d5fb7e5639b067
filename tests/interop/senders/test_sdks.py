"""The libraries of senders judge what the tests sign in their name."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.generators import run
from tests.support.webhooks import OF_THE_PAGE

PROGRAM = Path(__file__).parent / "sdks"
NAMES = {
    "GitHub": "github",
    "Stripe": "stripe",
    "Slack": "slack",
    "Shopify": "shopify",
    "Discord": "discord",
    "SendGrid": "sendgrid",
    "Svix, Clerk, Resend, OpenAI": "svix",
    "Linear": "linear",
    "LINE": "line",
}

pytestmark = [pytest.mark.long, pytest.mark.needs("npm", "node")]


def test_each_library_accepts_what_is_signed_and_nothing_else(tmp_path: Path) -> None:
    """A signature of ours that the sender's own library takes is the sender's."""
    directory = tmp_path / "program"
    shutil.copytree(PROGRAM, directory)
    run(directory, "npm", "install", "--no-audit", "--no-fund", "--no-package-lock")
    now_ms = int(time.time() * 1000)
    body = json.dumps({"id": "evt_1", "object": "event", "webhookTimestamp": now_ms})
    lines = []
    for sender, name in NAMES.items():
        secret, sign = OF_THE_PAGE[sender]
        signed = sign(secret, body.encode(), now_ms)
        head = {key.decode(): value.decode() for key, value in signed.items()}
        lines += [
            json.dumps({"name": name, "secret": secret, "body": text, "head": head})
            for text in (body, body + " ")
        ]
    told = subprocess.run(
        ["node", "verify.mjs"],
        cwd=directory,
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout.splitlines()
    assert told[::2] == [f"{name}: valid" for name in NAMES.values()]
    assert [
        line[: len("not valid") + len(name) + 2]
        for line, name in zip(told[1::2], NAMES.values(), strict=True)
    ] == [f"{name}: not valid" for name in NAMES.values()]
