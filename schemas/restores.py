"""Topics that are brought back from the archive."""

from __future__ import annotations

from typing import Literal

from schemas.base import Model, ResponseModel
from schemas.common import Count, TimestampMs, TopicName, TopicShown


class RestoreTopic(Model):
    """What to bring back."""

    source: TopicName
    """Topic in the archive; it may be deleted."""
    until: TimestampMs | None = None
    """Restore it as it was archived at this time. Default: as it is archived now."""


class TopicRestore(ResponseModel):
    """The last restore of a topic of this name; a restart forgets it."""

    topic: TopicShown
    source: TopicShown
    until: TimestampMs | None
    """The time whose state is restored; null for the present one."""
    state: Literal["waiting", "restoring", "done", "failed"]
    """The topic exists once it is `done`; nothing of it stays when it `failed`."""
    partitions: Count
    """Number of partitions."""
    total_bytes: Count
    """Bytes to read from the archive."""
    restored_bytes: Count
    """Bytes read so far."""
    problems: list[str]
    """Why it failed; or where a damaged archive made a partition end early."""
