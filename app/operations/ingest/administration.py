"""Ingest profiles and ingest tokens as resources: read, put, delete, create, list."""

from __future__ import annotations

from app.codecs.conditions import ensure_conditions, is_known
from app.codecs.json_pointer import pointer_of
from app.codecs.receipts import to_json
from app.errors import IngestProfileNotFound, invalid_member
from app.http.answers import NO_STORE, Answer, Headers, json_answer
from app.operations.exchange import Exchange
from app.operations.ingest.profiles import IngestProfile, Stored
from schemas.ingest import PutIngestProfile


def get_profile(exchange: Exchange, topic: str) -> Answer:
    """Return the topic's own profile, without its secrets."""
    exchange.service.topic(topic)
    stored = _stored(exchange, topic)
    if is_known(exchange.head, _etag_of(stored)):
        return Answer(304, [NO_STORE, *_tag_headers(stored)], b"")
    return _profile_answer(stored)


async def put_profile(exchange: Exchange, topic: str, wanted: PutIngestProfile) -> Answer:
    """Replace the topic's profile: 201 for its first, otherwise 200; durable in either case."""
    service = exchange.service
    async with service.changing_topics:
        topic_id = service.topic(topic).topic_id
        before = service.profiles.stored(topic)
        etag = None if before is None else _etag_of(before)
        ensure_conditions(exchange.head, etag, topic=topic)
        _ensure_usable(wanted)
        complete = _with_secrets(wanted, before)
        _ensure_keys(complete)
        stored = await service.profiles.put(topic, topic_id, complete)
    return _profile_answer(stored, status=201 if before is None else 200)


async def delete_profile(exchange: Exchange, topic: str) -> Answer:
    """Delete the topic's profile with its secrets, durably."""
    service = exchange.service
    async with service.changing_topics:
        service.topic(topic)
        stored = _stored(exchange, topic)
        ensure_conditions(exchange.head, _etag_of(stored), topic=topic)
        await service.profiles.delete(topic)
    return Answer(204, [], b"")


async def create_token(exchange: Exchange, topic: str) -> Answer:
    """Create a token; this answer is the only one that has it."""
    service = exchange.service
    async with service.changing_topics:
        topic_id = service.topic(topic).topic_id
        token_id, token = await service.ingest_tokens.create(
            topic, topic_id, service.clock.now_ms()
        )
    url = f"{service.url_of(topic)}/ingest/{token}"
    return json_answer(to_json({"id": token_id, "token": token, "url": url}), status=201)


def list_tokens(exchange: Exchange, topic: str) -> Answer:
    """Return the tokens of a topic, the oldest first: ids and times."""
    exchange.service.topic(topic)
    tokens = exchange.service.ingest_tokens.of(topic)
    shown = [
        {"id": token_id, "created_timestamp": token.created_ms}
        for token_id, token in tokens.items()
    ]
    return json_answer(to_json({"tokens": shown}))


def list_refusals(exchange: Exchange, topic: str) -> Answer:
    """Return the last requests to the topic's ingest URLs that were refused, the newest first."""
    exchange.service.topic(topic)
    shown = [refusal._asdict() for refusal in exchange.service.refusals.of(topic)]
    return json_answer(to_json({"topic": topic, "refusals": shown}))


async def delete_token(exchange: Exchange, topic: str, token_id: str) -> Answer:
    """Revoke a token, durably and at once."""
    service = exchange.service
    async with service.changing_topics:
        service.topic(topic)
        await service.ingest_tokens.delete(topic, token_id)
    return Answer(204, [], b"")


def _stored(exchange: Exchange, topic: str) -> Stored:
    stored = exchange.service.profiles.stored(topic)
    if stored is None:
        raise IngestProfileNotFound(
            f"{topic} has no ingest profile: every member has its default, and senders need an "
            "API key or an ingest token where credentials are required",
            topic=topic,
        )
    return stored


def _ensure_usable(wanted: PutIngestProfile) -> None:
    """Raise InvalidRequestValue for a pointer that is too deep to be followed."""
    for source in (wanted.key, wanted.delivery_id):
        if source is not None and source.pointer is not None:
            pointer_of(source.pointer)


def _ensure_keys(document: PutIngestProfile) -> None:
    """Raise InvalidBody for a public key that has the form of one and is none."""
    try:
        IngestProfile.of(document)
    except ValueError as error:
        raise invalid_member(
            "signature.secrets", "a public key is not one of the scheme's curve"
        ) from error


def _with_secrets(wanted: PutIngestProfile, before: Stored | None) -> PutIngestProfile:
    """Return the document with the secrets that it shall have: sent, or those of the same scheme.

    Raises InvalidBody if there are none, or another number than the client knows of.
    """
    signature = wanted.signature
    if signature is None:
        return wanted
    secrets = signature.secrets
    if secrets is None and before is not None and before.document.signature is not None:
        earlier = before.document.signature
        secrets = earlier.secrets if earlier.scheme == signature.scheme else None
    if secrets is None:
        raise invalid_member(
            "signature.secrets",
            f"send secrets: the topic has none for the scheme {signature.scheme}",
        )
    if signature.secrets_count not in {None, len(secrets)}:
        raise invalid_member(
            "signature.secrets_count",
            f"the profile would have {len(secrets)} secrets, not {signature.secrets_count}: get "
            "the profile again, or leave secrets_count out",
        )
    complete = signature.model_copy(update={"secrets": secrets, "secrets_count": None})
    return wanted.model_copy(update={"signature": complete})


def _profile_answer(stored: Stored, *, status: int = 200) -> Answer:
    shown = stored.document.model_dump(
        mode="json", exclude_none=True, exclude={"signature": {"secrets"}}
    )
    signature = stored.document.signature
    if signature is not None:
        shown["signature"]["secrets_count"] = len(signature.secrets or ())
    return json_answer(to_json(shown), status=status, headers=_tag_headers(stored))


def _etag_of(stored: Stored) -> str:
    return f'"{stored.revision}"'


def _tag_headers(stored: Stored) -> Headers:
    return [(b"etag", _etag_of(stored).encode())]
