"""What a read found, and the answers that were made of it: shared by readers of one turn."""

from __future__ import annotations

from typing import NamedTuple

from app.http.answers import Answer
from engine.log.results import Fetched


class Found(NamedTuple):
    """What was read, and from where."""

    start: int
    fetched: Fetched
    answers: dict[bytes, Answer]
    """What has been made of it, by media type."""
    lines: dict[bytes, bytes]
    """The headers of those as lines, where a hot lane has sent them."""
