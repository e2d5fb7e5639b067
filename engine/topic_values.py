"""Parsers for the values of topic configurations, from strings or JSON, with their ranges.

Each function returns a parser or is one. A parser takes the name of the option for its error:
InvalidConfig has the option, the value and what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from engine.errors import InvalidConfig
from engine.types import INT64_MAX

ConfigValue: TypeAlias = str | int | float | bool | Iterable[str] | None
ParsedValue: TypeAlias = int | float | bool | str | tuple[str, ...]
Parse: TypeAlias = Callable[[str, ConfigValue], ParsedValue]

_THROTTLED_REPLICA: Final = re.compile("[0-9]+:[0-9]+")


def reject(name: str, value: object, expected: str) -> InvalidConfig:
    """Return the error for an illegal value."""
    return InvalidConfig(
        f"{name} must be {expected}, not {value!r}",
        name=name,
        value=str(value),
        accepted=[expected],
    )


def integer(low: int, high: int) -> Parse:
    """Return a parser for integers from `low` to `high`, inclusive."""

    def parse(name: str, value: ConfigValue) -> int:
        expected = f"an integer from {low} to {high}"
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise reject(name, value, expected)
        text = value.strip() if isinstance(value, str) else str(value)
        digits = text[1:] if text[:1] in "+-" else text
        if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(INT64_MAX)):
            raise reject(name, value, expected)
        number = int(text)
        if not low <= number <= high:
            raise reject(name, value, expected)
        return number

    return parse


def ratio(name: str, value: ConfigValue) -> float:
    """Parse a number from 0 to 1."""
    expected = "a number from 0 to 1"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise reject(name, value, expected)
    try:
        number = float(value)
    except ValueError:
        raise reject(name, value, expected) from None
    if not 0.0 <= number <= 1.0:  # refuses NaN too
        raise reject(name, value, expected)
    return number


def boolean(name: str, value: ConfigValue) -> bool:
    """Parse true and false, in any case."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        return value.strip().lower() == "true"
    raise reject(name, value, "true or false")


def one_of(*choices: str) -> Parse:
    """Return a parser for one of these words."""

    def parse(name: str, value: ConfigValue) -> str:
        if isinstance(value, str) and value.strip() in choices:
            return value.strip()
        raise reject(name, value, "one of " + ", ".join(choices))

    return parse


def subset_of(*choices: str) -> Parse:
    """Return a parser for a list of these words, without duplicates, in lower case."""

    def parse(name: str, value: ConfigValue) -> tuple[str, ...]:
        expected = "a list of " + ", ".join(choices)
        items = [item.lower() for item in _items(name, value, expected)]
        if not set(items) <= set(choices):
            raise reject(name, value, expected)
        return tuple(dict.fromkeys(items))

    return parse


def gzip_level(name: str, value: ConfigValue) -> int:
    """Parse a gzip level; -1 is zlib's default."""
    level = integer(-1, 9)(name, value)
    if level == 0:
        raise reject(name, value, "-1 or an integer from 1 to 9")
    assert isinstance(level, int)
    return level


def throttled_replicas(name: str, value: ConfigValue) -> tuple[str, ...]:
    """Parse a list of partition:broker pairs, or `*`."""
    expected = "* or a list of partition:broker"
    items = _items(name, value, expected)
    if items != ["*"] and not all(map(_THROTTLED_REPLICA.fullmatch, items)):
        raise reject(name, value, expected)
    return tuple(items)


def _items(name: str, value: ConfigValue, expected: str) -> list[str]:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    if isinstance(value, Iterable):
        return [str(item).strip() for item in value]
    raise reject(name, value, expected)
