"""What the service is configured with: settings, API keys, topic configurations, the caller."""

from __future__ import annotations

from app.codecs.receipts import to_json
from app.http.answers import Answer, json_answer
from app.operations.exchange import Exchange
from app.operations.service import Service
from app.settings_sources import in_force
from engine.topic_keys import TOPIC_KEYS, effective


def get_caller(exchange: Exchange) -> Answer:
    """Return who asks, and what the credentials allow."""
    caller = exchange.caller
    members = {
        "name": caller.name,
        "scopes": caller.grants.scopes,
        "expires_timestamp": None if caller.expires_ms is None else int(caller.expires_ms),
        "masked_fields": exchange.service.settings.masked_fields,
    }
    return json_answer(to_json(members))


def get_settings(service: Service) -> Answer:
    """Return every setting with its source; URLs have no user, query or fragment."""
    shown = {
        name: {"value": one.value, "source": one.source, "description": one.description}
        for name, one in in_force(service.settings).items()
    }
    return json_answer(to_json({"settings": shown}))


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
