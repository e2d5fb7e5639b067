"""What generated requests need besides the document; loaded by the long run's own process, too."""

import zlib
from typing import Any

import schemathesis
from schemathesis import Case, HookContext, SerializationContext

TOPIC = "flights"
PARTITIONS = 2


@schemathesis.serializer("application/x-ndjson", "application/vnd.kafka.recordbatch.v2")
def as_bytes(_context: SerializationContext, value: object) -> bytes:
    """Bodies that are not one JSON document go out as they were generated."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@schemathesis.hook
def before_call(_context: HookContext, case: Case[Any], _kwargs: dict[str, Any]) -> None:
    """Ask every other request of a log that is there: a made-up name leads no further than 404.

    Which ones is decided by the name that was made up, so that a failure can be repeated.
    """
    path = case.path_parameters
    if isinstance(path.get("topic"), str) and _is_chosen(path["topic"]):
        path["topic"] = TOPIC
        if "partition" in path:
            path["partition"] = zlib.crc32(str(path["partition"]).encode(errors="replace"))
            path["partition"] %= PARTITIONS


def _is_chosen(name: str) -> bool:
    return name != TOPIC and zlib.crc32(name.encode("utf-8", "replace")) % 2 == 0
