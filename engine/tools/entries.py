"""The entries of a dump: names and values, in the format of Kafka's tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Value: TypeAlias = int | str | bool | tuple[str, ...] | None
Kind: TypeAlias = Literal[
    "file",  # a new file begins
    "log_start",  # the base offset of a .log file
    "batch",
    "record",
    "index",  # an entry of .index or .timeindex
    "producer",  # an entry of .snapshot
    "transaction",  # an entry of .txnindex
    "empty",  # an index without entries
    "invalid_bytes",  # a .log file goes on after its last batch
    "gap",  # missing offsets: compacted or lost
    "problem",  # damage or disagreement: belongs on the error stream
]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a dump: its kind, and Kafka's names with their values, in order."""

    kind: Kind
    fields: Mapping[str, Value] = field(default_factory=dict)


Dump: TypeAlias = Iterator[Entry]

_OPTIONAL: Final = frozenset({"deleteHorizonMs", "currentTxnFirstOffset"})
_SENTENCES: Final[Mapping[Kind, str]] = {
    "file": "Dumping {path}",
    "log_start": "Log starting offset: {offset}",
    "empty": "{path} is empty.",
    "invalid_bytes": "Found {count} invalid bytes at the end of {file}",
    "gap": "{file}: {offset} is followed by {nextOffset}",
    "problem": "{detail}",
}


def problem(detail: str, **facts: Value) -> Entry:
    """Return the entry for a fault: a sentence and, for programs, its facts."""
    return Entry("problem", {"detail": detail, **facts})


def render(entry: Entry) -> str:
    """Format an entry like Kafka's tool."""
    sentence = _SENTENCES.get(entry.kind)
    if sentence is not None:
        return sentence.format_map(entry.fields)
    line = " ".join(f"{name}: {_spell(name, value)}" for name, value in entry.fields.items())
    return f"| {line}" if entry.kind == "record" else line


def _spell(name: str, value: Value) -> str:
    if name in _OPTIONAL:
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{','.join(value)}]"
    return str(value)
