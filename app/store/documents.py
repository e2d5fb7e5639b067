"""The port to small documents: what operations have to remember besides records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeAlias

Document: TypeAlias = Mapping[str, object]
"""A JSON object."""


class Documents(ABC):
    """JSON objects by name; few, small, and possibly secret. What changes is durable on return."""

    on_changed: Callable[[], None] | None = None
    """Called on the loop after documents have changed, if other services change them too."""

    @abstractmethod
    def all(self) -> Mapping[str, Document]:
        """Return all documents by name; published whole."""

    @abstractmethod
    async def change(self, changes: Mapping[str, Document | None]) -> None:
        """Replace, add or (None) remove documents: all of these or none. One call at a time.

        Raises StorageError, and then `all` returns what it did before.
        """

    @abstractmethod
    async def add(self, name: str, document: Document) -> Document:
        """Add a document unless there is one; return the one that is stored. As `change`."""

    @abstractmethod
    def damaged(self, name: str, why: str) -> Exception:
        """Return the error for an unreadable document; it names the place."""
