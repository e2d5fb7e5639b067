"""An object store in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.object_stores import ObjectStore, bucket_at, moto


@pytest.fixture(scope="session")
def store_server() -> Iterator[str]:
    with moto() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(store_server: str, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A bucket of one test, found by the environment as the libraries do."""
    made = bucket_at(store_server)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made
