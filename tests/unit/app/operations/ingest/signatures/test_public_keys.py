"""Schemes with a key pair, against what a sender's own SDK has."""

from __future__ import annotations

import pytest

from app.errors import InvalidSignature
from app.operations.ingest.signatures import signature_of
from schemas.ingest import PutIngestSignature

KEY = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+"
    "2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
)
SIGNATURE = (
    b"MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtE"
    b"ZtM="
)
BODY = (
    b'[{"email":"hello@world.com","event":"dropped","reason":"Bounced Address",'
    b'"sg_event_id":"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA",'
    b'"sg_message_id":"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0",'
    b'"smtp-id":"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>","timestamp":1600112492}]\r\n'
)
SIGNED_MS = 1_600_112_502_000


def test_the_event_that_sendgrids_own_sdk_verifies() -> None:
    """The key, the body and the signature of the tests of `sendgrid-python`."""
    signature = signature_of(PutIngestSignature(scheme="sendgrid", secrets=[KEY]))
    name = b"x-twilio-email-event-webhook-"
    head = {name + b"signature": SIGNATURE, name + b"timestamp": b"1600112502"}
    signature.verify(head, BODY, SIGNED_MS)
    with pytest.raises(InvalidSignature):
        signature.verify(head, BODY[:-2], SIGNED_MS)
