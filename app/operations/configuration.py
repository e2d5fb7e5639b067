"""What the service is configured with: settings, API keys, topic configurations, the caller."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import TypeAdapter
from pydantic_settings import EnvSettingsSource

from app.codecs.receipts import to_json
from app.http.answers import Answer, json_answer
from app.operations.exchange import Exchange
from app.operations.service import Service
from app.settings import KafkaSettings, Settings
from engine.topic_keys import TOPIC_KEYS, effective
from schemas.base import field_docstrings

_URL: Final = re.compile(r"(://)(?:[^/@\s\"]+@)?([^?#\s\"]*)(?:[?#][^\s\"]*)?")
"""A URL from its scheme on; its user, query and fragment may be credentials."""


def get_caller(exchange: Exchange) -> Answer:
    """Return who asks, and what the credentials allow."""
    caller = exchange.caller
    members = {
        "name": caller.name,
        "scopes": caller.grants.scopes,
        "expires_timestamp": None if caller.expires_ms is None else int(caller.expires_ms),
    }
    return json_answer(to_json(members))


def get_settings(service: Service) -> Answer:
    """Return every setting with its source; URLs have no user, query or fragment."""
    settings = service.settings
    environment = EnvSettingsSource(Settings)()
    values = settings.model_dump(mode="json")
    described: dict[str, str] = {}
    for part in (Settings, KafkaSettings):
        described |= field_docstrings(part.__module__)[part.__name__]
    shown = {
        name: {
            "value": _URL.sub(r"\1\2", _text(values[name])),
            "source": _source(settings, name, environment),
            "description": described.get(name, ""),
        }
        for name in Settings.model_fields
    }
    return json_answer(to_json({"settings": shown}))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _source(
    settings: Settings, name: str, environment: Mapping[str, Any]
) -> Literal["command_line", "environment", "default"]:
    """Return where a setting's value is from; the command line overrides the environment."""
    if name not in settings.model_fields_set:
        return "default"
    if name in environment:
        declared: Any = Settings.model_fields[name].annotation
        value = TypeAdapter(declared).validate_python(environment[name])
        if value == getattr(settings, name):
            return "environment"
    return "command_line"


def list_keys(service: Service) -> Answer:
    """Return the API keys by name: what they allow, never what they are."""
    keys = sorted(service.security.keys.items(), key=lambda one: one[1].name)
    shown = [
        {
            "id": key_id,
            "name": key.name,
            "scopes": key.scopes,
            "created_timestamp": key.created_ms,
            "expires_timestamp": key.expires_ms,
        }
        for key_id, key in keys
    ]
    return json_answer(to_json({"keys": shown}))


def list_topic_configs(service: Service) -> Answer:
    """Return Kafka's topic configurations: what a topic gets that does not set them."""
    defaults = effective(service.settings.default_topic_config)
    shown = [
        {
            "name": name,
            "default": defaults[name].value,
            "accepted": key.accepted,
            "description": key.documentation,
        }
        for name, key in TOPIC_KEYS.items()
    ]
    return json_answer(to_json({"configs": shown}))
