"""Schemes that sign a timestamp and the body: `stripe`, `slack`, and `zoom`, which imitates it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Final

from app.operations.ingest.signatures.signature import MAX_SIGNATURES, Claim, HmacSignature
from schemas.ingest import Scheme

_SLACK_VERSION: Final = b"v0="
_STRIPE_ITEM: Final = re.compile(rb"([a-z0-9]{1,16})=([!-+\--~]{1,128})")


class Slack(HmacSignature):
    """Slack's Events API, commands and interactions: `v0=<hex>` of `v0:<time>:<body>`."""

    scheme: ClassVar[Scheme] = "slack"
    delivery_pointer: ClassVar[str | None] = "/event_id"
    name = "X-Slack-Signature"
    time_name: ClassVar[str] = "X-Slack-Request-Timestamp"
    form = "v0=<hexadecimal digits>"
    advice = "use the signing secret of the app's Basic Information, not its verification token"

    def _claim(self, head: Mapping[bytes, bytes], now_ms: int) -> Claim:
        value = self._value(head, self.name)
        seconds = self._value(head, self.time_name)
        if not value.startswith(_SLACK_VERSION):
            raise self._malformed(self.name, self.form)
        self._ensure_timely(self.time_name, seconds, now_ms)
        return Claim(b"v0:%b:" % seconds, [value[len(_SLACK_VERSION) :]])


class Zoom(Slack):
    """Zoom's event notifications: Slack's signature with Zoom's headers."""

    scheme = "zoom"
    delivery_pointer: ClassVar[str | None] = None
    name = "x-zm-signature"
    time_name = "x-zm-request-timestamp"
    advice = "use the secret token of the app's Features page, not its verification token"


class Stripe(HmacSignature):
    """Stripe: `t=<time>,v1=<hex>[,v1=<hex>…]` of `<time>.<body>`."""

    scheme = "stripe"
    delivery_pointer = "/id"
    name = "Stripe-Signature"
    form = "t=<seconds>,v1=<hexadecimal digits>"
    advice = "use the endpoint's signing secret, whsec_…, not an API key"

    def _claim(self, head: Mapping[bytes, bytes], now_ms: int) -> Claim:
        times: list[bytes] = []
        signatures: list[bytes] = []
        for item in self._value(head, self.name).split(b","):
            match = _STRIPE_ITEM.fullmatch(item)
            if match is None:
                raise self._malformed(self.name, self.form)
            if match[1] == b"t":
                times.append(match[2])
            elif match[1] == b"v1":
                signatures.append(match[2])
        if len(times) != 1 or not 1 <= len(signatures) <= MAX_SIGNATURES:
            raise self._malformed(self.name, self.form)
        self._ensure_timely(self.name, times[0], now_ms)
        return Claim(times[0] + b".", signatures)
