"""A read's result and its renderings: shared by readers of one turn."""

from __future__ import annotations

from typing import NamedTuple

from app.http.answers import Answer
from engine.log.results import Fetched


class Found(NamedTuple):
    """The data, and where the read started."""

    start: int
    fetched: Fetched
    answers: dict[bytes, Answer]
    """Its renderings, by media type."""
    lines: dict[bytes, bytes]
    """Their headers as lines, for answers that `app.wire` sent."""
