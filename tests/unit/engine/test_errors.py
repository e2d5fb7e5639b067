"""The tree of errors: numbers, facts, leaves."""

import re
from pathlib import Path

import engine.errors
from engine.errors import (
    BatchSetTooLarge,
    EngineError,
    ErrorCode,
    InvalidRecord,
    InvalidTimestamp,
    SequenceGap,
    StoredDataCorrupt,
    TooLarge,
    leaf_errors,
)


def test_every_number_has_one_name() -> None:
    """No two of Kafka's error names share a number, as a silent alias would."""
    assert len({code.value for code in ErrorCode}) == len(ErrorCode.__members__)


def test_leaves_are_the_classes_without_subclasses() -> None:
    """A leaf has no children; a mapping of all leaves to statuses is complete."""
    leaves = set(leaf_errors(EngineError))
    assert SequenceGap in leaves
    assert BatchSetTooLarge in leaves
    assert InvalidRecord not in leaves
    assert not [leaf for leaf in leaves if leaf.__subclasses__()]
    assert list(leaf_errors(SequenceGap)) == [SequenceGap]


def test_facts_are_kept_by_name() -> None:
    """An error has the facts that programs need, so that they need not parse its message."""
    gap = SequenceGap("a gap", producer_id=7, expected=3, received=5)
    assert gap.facts() == {"producer_id": 7, "expected": 3, "received": 5}
    assert str(gap) == "a gap"
    assert EngineError("without facts").facts() == {}


def test_limits_and_places_are_facts() -> None:
    """A passed limit names itself and both sizes, damage its file, position and offset."""
    too_large = TooLarge("much", limit="max.message.bytes", limit_bytes=10, actual_bytes=11)
    assert too_large.facts() == {
        "limit": "max.message.bytes",
        "limit_bytes": 10,
        "actual_bytes": 11,
    }
    damage = StoredDataCorrupt("bad", file=Path("/data/t-0/0.log"), position=5, offset=2)
    assert damage.facts() == {"file": "/data/t-0/0.log", "position": 5, "offset": 2}


def test_refused_records_are_listed() -> None:
    """An invalid batch lists its records; a list that came lazily is kept."""
    error = InvalidRecord("two are wrong", ({"index": index} for index in (1, 4)))  # type: ignore[arg-type]  # any iterable works
    assert error.errors == ({"index": 1}, {"index": 4})


def test_kinds_of_errors_have_kafkas_numbers() -> None:
    """A few that clients act on carry the number of Kafka's protocol, not of their parent."""
    assert (TooLarge.kafka_code, BatchSetTooLarge.kafka_code) == (10, 18)
    assert (InvalidRecord.kafka_code, InvalidTimestamp.kafka_code) == (87, 32)
    assert EngineError.kafka_code is None


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Every class of the tree that the module shows exists below EngineError."""
    shown = set(re.findall(r"── (\w+)", engine.errors.__doc__ or ""))
    defined = {
        name
        for name, value in vars(engine.errors).items()
        if isinstance(value, type) and issubclass(value, EngineError)
    }
    assert shown <= defined
