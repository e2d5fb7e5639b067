"""The store that the settings ask for: data directories here, or a Kafka cluster."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from importlib.util import find_spec

from app.limits.executors import Workers
from app.settings import Settings
from app.store.local.store import LocalStore
from app.store.port import Store
from engine.clock import Clock
from engine.errors import InvalidConfig
from engine.fs.port import FileSystem
from engine.metrics import Recorder


def make_store(
    settings: Settings,
    *,
    workers: Workers,
    clock: Clock,
    fs: FileSystem,
    recorder: Recorder,
    on_moved: Callable[[Hashable], None],
    has_readers: Callable[[Hashable], bool],
    on_gone: Callable[[str], None],
) -> Store:
    """Return the store, not open yet; raises InvalidConfig if it cannot be used."""
    if not settings.kafka:
        return LocalStore(
            settings, workers=workers, clock=clock, fs=fs, recorder=recorder, on_moved=on_moved
        )
    if find_spec("kio") is None:
        raise InvalidConfig("a Kafka cluster needs the extra kafka: pip install 'tidelog[kafka]'")
    from app.store.kafka.store import KafkaStore  # noqa: PLC0415  # an extra

    return KafkaStore(
        settings, clock=clock, fs=fs, on_moved=on_moved, has_readers=has_readers, on_gone=on_gone
    )
