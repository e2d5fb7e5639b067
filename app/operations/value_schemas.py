"""How the values of topics are decoded when somebody looks at them.

The service stores a schema and gives it to clients, such as the console; it decodes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from app.store.port import Document, Documents
from schemas.value_schemas import PutValueSchema

_LOG = logging.getLogger(__name__)

_PREFIX: Final = "value-schema:"


class ValueSchemas:
    """The schemas of all topics; belongs to the event loop.

    A schema belongs to one topic id: a topic that is created again under a name starts without.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._stored: dict[str, Document] = {}

    def load(self, topic_ids: Mapping[str, str]) -> None:
        """Take the stored schemas over."""
        found: dict[str, Document] = {}
        for topic, document in self._documents.named(_PREFIX).items():
            if document.get("topic_id") == topic_ids.get(topic):
                found[topic] = document
            else:
                _LOG.warning("the %s%s belongs to another topic, and is not used", _PREFIX, topic)
        self._stored = found

    def of(self, topic: str) -> Document | None:
        """Return the stored document of a topic: its schema, and the topic's id."""
        return self._stored.get(topic)

    async def put(self, topic: str, topic_id: str, wanted: PutValueSchema) -> bool:
        """Store a schema durably; return whether it is the topic's first."""
        is_first = topic not in self._stored
        document = {"topic_id": topic_id, "schema": wanted.model_dump(mode="json")}
        await self._documents.change({_PREFIX + topic: document})
        self._stored[topic] = document
        return is_first

    async def delete(self, topic: str) -> None:
        """Remove the schema of a topic, durably."""
        await self._documents.change({_PREFIX + topic: None})
        self._stored.pop(topic, None)

    def forget(self, topic: str) -> list[str]:
        """Stop using the schema of a deleted topic; return the documents to remove."""
        self._stored.pop(topic, None)
        name = _PREFIX + topic
        return [name] if name in self._documents.all() else []
