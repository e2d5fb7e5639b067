"""Page tokens: the last name of a page, so that a list continues after it."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from app.errors import MalformedRequest

MAX_PAGE_ENTRIES: Final = 1_000
"""Entries of one page of a list, whatever is asked for."""


def encode_token(name: str) -> str:
    """Return the token of the page that begins after this name."""
    return base64.urlsafe_b64encode(name.encode()).decode()


def decode_token(token: str) -> str:
    """Return the name in a token; raises MalformedRequest."""
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise malformed_token() from None


def malformed_token() -> MalformedRequest:
    """Return the error of an invalid token."""
    return MalformedRequest(
        "page_token is not the next_page_token of a list response", parameter="page_token"
    )
