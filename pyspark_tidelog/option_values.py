"""Parsing of option values, for both sides: each raises OptionError with one sentence.

Options are given as Spark passes them: text, by lower-case name.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark_tidelog.documents import TOPIC_NAME
from pyspark_tidelog.errors import OptionError

INT64_MAX: Final = (1 << 63) - 1

# Options under names from Spark's Kafka source, and under names that Spark does not redact.
_OTHER_NAMES: Final = {
    "apikey": "token",
    "apikeyfile": "tokenFile",
    "kafka.bootstrap.servers": "url",
}


def refuse_unknown(
    given: Iterable[str],
    known_options: Iterable[str],
    other_names: Mapping[str, str],
    hints: Mapping[str, str] | None = None,
) -> None:
    """Raise OptionError for an unknown option, with the name that was probably meant.

    A misspelt `startingOffset` must not silently read the whole log.
    """
    known = {name.lower(): name for name in known_options}
    meant = {**_OTHER_NAMES, **other_names}
    for name in given:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        if name in meant:
            hint = f"here it is called {meant[name]}"
        elif near:
            hint = f"did you mean {known[near[0]]}?"
        else:
            hint = f"known are {', '.join(known.values())}"
        raise OptionError(f"unknown option {name}: {(hints or {}).get(name, hint)}")


def integer(
    given: Mapping[str, str], option: str, *, at_least: int, at_most: int = INT64_MAX
) -> int | None:
    """Read an integer between two inclusive bounds; None if it is not given."""
    text = given.get(option.lower())
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = at_least - 1
    if not at_least <= number <= at_most:
        ceiling = f" and at most {at_most}" if at_most < INT64_MAX else ""
        raise OptionError(
            f"option {option} must be a whole number of at least {at_least}{ceiling}, not {text!r}"
        )
    return number


def boolean(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    """Read true or false, in any case."""
    return choice(given, option, ("true", "false"), default=str(default).lower()) == "true"


def choice(given: Mapping[str, str], option: str, words: tuple[str, str], *, default: str) -> str:
    """Read one of two words, in any case."""
    text = given.get(option.lower(), default)
    word = text.strip().lower()
    if word not in words:
        raise OptionError(f"option {option} must be {words[0]} or {words[1]}, not {text!r}")
    return word


def seconds(given: Mapping[str, str], option: str, *, default: float) -> float:
    """Read a time of up to an hour."""
    text = given.get(option.lower())
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 3600:
        raise OptionError(f"option {option} must be seconds between 0 and 3600, not {text!r}")
    return number


def json_object(text: str) -> dict[str, Any] | None:
    """Parse a JSON object; return None for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def ensure_topic_name(option: str, name: str) -> None:
    """Raise OptionError for a name that no topic can have."""
    if not re.fullmatch(TOPIC_NAME, name):
        raise OptionError(f"option {option}: {name!r} cannot be the name of a topic")
