"""Where settings come from: options, then variables, then `tidelog.toml`, then defaults.

An unknown name is refused, and the closest known one suggested. Otherwise a quota with a mistyped
name would silently not apply.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from app.settings import VARIABLE_PREFIX, KafkaSettings, Settings, Source
from schemas.base import field_docstrings

CONFIG_FILE: Final = Path("tidelog.toml")
"""Read from the working directory, unless another file is named."""

OF_COMMANDS: Final = frozenset(
    VARIABLE_PREFIX + name
    for name in ("API_KEY", "CA_FILE", "CLIENT_CERT", "CLIENT_KEY", "CONFIG", "SERVER")
)
"""Variables of the client commands, which the service ignores."""

# Kubernetes sets these in every pod beside a service that is called tidelog, and Docker for links.
_OF_ORCHESTRATORS: Final = re.compile(
    VARIABLE_PREFIX
    + r"(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)"
)

_URL: Final = re.compile(r"(://)(?:[^/@\s\"]+@)?([^?#\s\"]*)(?:[?#][^\s\"]*)?")
"""A URL from its scheme on; its user, query and fragment may be credentials."""


class WrongSettings(Exception):
    """Settings that the service cannot use: a sentence for each fault."""


class InForce(NamedTuple):
    """One setting as it is shown to people: URLs have no user, query or fragment."""

    value: str
    default: str
    source: Source
    description: str


def read_settings(options: Mapping[str, object], config: Path | None = None) -> Settings:
    """Return the settings in force, which know where each is from.

    `config` is a file that must exist; without it `tidelog.toml` is read if it is there. An empty
    variable counts as none. Raises WrongSettings.
    """
    file = config or (CONFIG_FILE if CONFIG_FILE.is_file() else None)
    in_file = {} if file is None else _content_of(file)
    in_environment = _in_environment()
    strangers = [*_strangers_in(in_file, file), *_strangers_in_environment()]
    if strangers:
        raise WrongSettings("; ".join(strangers))
    sources: dict[str, Source] = {
        **dict.fromkeys(in_file, "file"),
        **dict.fromkeys(in_environment, "environment"),
        **dict.fromkeys(options, "command_line"),
    }
    try:
        settings = Settings(**{**in_file, **in_environment, **options})
    except ValidationError as error:
        faults = [_sentence(one, sources, file) for one in error.errors()]
        raise WrongSettings("; ".join(faults)) from None
    settings.note_sources(sources)
    return settings


def in_force(settings: Settings) -> dict[str, InForce]:
    """Return every setting by its name; secrets are shown as stars."""
    described: dict[str, str] = {}
    for part in (Settings, KafkaSettings):
        described |= field_docstrings(part.__module__)[part.__name__]
    values, defaults = _shown(settings), _shown(Settings.model_construct())
    return {
        name: InForce(value, defaults[name], settings.source_of(name), described.get(name, ""))
        for name, value in values.items()
    }


def changed(settings: Settings) -> dict[str, str]:
    """Return the settings that differ from their default, as `in_force` shows them."""
    defaults = _shown(Settings.model_construct())
    return {name: one for name, one in _shown(settings).items() if one != defaults[name]}


def _content_of(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WrongSettings(f"{file} cannot be read: {error}") from None


def _in_environment() -> dict[str, str]:
    """Return the settings that variables set, whatever their case; an empty one sets nothing."""
    named = {
        name.upper().removeprefix(VARIABLE_PREFIX).lower(): value
        for name, value in os.environ.items()
        if name.upper().startswith(VARIABLE_PREFIX) and value
    }
    return {name: value for name, value in named.items() if name in Settings.model_fields}


def _strangers_in(content: Mapping[str, Any], file: Path | None) -> Iterator[str]:
    for name in sorted(content.keys() - Settings.model_fields.keys()):
        close = get_close_matches(name, Settings.model_fields, n=1)
        yield f"{name} in {file} is not a setting{f': {close[0]} is' if close else ''}"


def _strangers_in_environment() -> Iterator[str]:
    settings = [name.upper() for name in Settings.model_fields]
    known = {VARIABLE_PREFIX + name for name in settings} | OF_COMMANDS
    for name in sorted(os.environ):
        upper = name.upper()
        if not upper.startswith(VARIABLE_PREFIX) or upper in known:
            continue
        if not _OF_ORCHESTRATORS.fullmatch(upper):
            close = get_close_matches(upper.removeprefix(VARIABLE_PREFIX), settings, n=1)
            yield f"{name} is not a setting{f': {VARIABLE_PREFIX}{close[0]} is' if close else ''}"


def _sentence(error: ErrorDetails, sources: Mapping[str, Source], file: Path | None) -> str:
    """Return what is wrong, of which setting, where it was set."""
    reason = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return reason  # of several settings, which it names
    name = str(error["loc"][0])
    match sources.get(name, "command_line"):
        case "environment":
            place = VARIABLE_PREFIX + name.upper()
        case "file":
            place = f"{name} in {file}"
        case _:
            place = name
    if "secret" in error["type"] or "password" in name:
        return f"{place}: {reason}"
    return f"{place} is {error['input']!r}: {reason}"


def _shown(settings: Settings) -> dict[str, str]:
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in settings.model_dump(mode="json").items()
    }
    return {name: _URL.sub(r"\1\2", text) for name, text in texts.items()}
