"""Producer identities."""

from __future__ import annotations

from schemas.base import Model
from schemas.common import Count


class ProducerIdentity(Model):
    """A producer id that nobody has used, and its first epoch."""

    producer_id: Count
    producer_epoch: int
