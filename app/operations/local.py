"""What only logs in this process can be asked for: elsewhere it is not supported."""

from __future__ import annotations

from app.errors import NotSupportedByBackend
from app.store.local.partition import LocalPartition
from app.store.local.store import LocalStore
from app.store.port import Partition, Store


def local_store(store: Store) -> LocalStore:
    """Return the store as the local one; raises NotSupportedByBackend if it is another."""
    if not isinstance(store, LocalStore):
        raise _not_supported()
    return store


def local_partition(partition: Partition) -> LocalPartition:
    """Return the partition as a local one; raises NotSupportedByBackend if it is another."""
    if not isinstance(partition, LocalPartition):
        raise _not_supported()
    return partition


def _not_supported() -> NotSupportedByBackend:
    return NotSupportedByBackend(
        "this operation needs a service that stores the logs in its own data directories"
    )
