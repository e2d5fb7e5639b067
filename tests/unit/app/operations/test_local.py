"""What only the local side can do is refused of any other."""

from abc import ABCMeta
from collections.abc import Callable
from typing import Any

import pytest

from app.errors import NotSupportedByBackend
from app.http.problems import kind_of
from app.operations.service import local_partition, local_store
from app.store.port import Partition, Store


@pytest.mark.parametrize(("face", "port"), [(local_store, Store), (local_partition, Partition)])
def test_another_side_cannot_do_it(face: Callable[[Any], object], port: ABCMeta) -> None:
    """The answer is 501, and nothing was asked of that side."""
    elsewhere: Any = type("Elsewhere", (port,), dict.fromkeys(port.__abstractmethods__))
    with pytest.raises(NotSupportedByBackend) as refused:
        face(elsewhere.__new__(elsewhere))
    assert kind_of(refused.value)[:2] == (501, "not_supported_by_backend")
