"""Topics that are brought back from the archive, under another name."""

from __future__ import annotations

from app.codecs.receipts import to_json
from app.errors import TopicRestoreNotFound
from app.http.answers import Answer, json_answer
from app.operations.exchange import Exchange
from app.operations.service import local_store
from app.security.rules import Action
from engine.archive.topic_restores import TopicRestore
from schemas.restores import RestoreTopic


async def restore_topic(exchange: Exchange, name: str, wanted: RestoreTopic) -> Answer:
    """Begin to restore a topic that the caller may read: 202."""
    service = exchange.service
    topics = local_store(service.store).topics
    exchange.caller.ensure(Action.READ, wanted.source)
    async with service.changing_topics:
        service.topic_makers.ensure_share(exchange.maker, len(service.topics.all()))
        if name not in service.topics.all():  # what a crash has left after an earlier deletion
            await service.groups.drop_topic(name)
            await service.forget_documents(name)
        report = await topics.restore(name, wanted.source, wanted.until)
        service.topic_makers.add(exchange.maker, name)
    return _answer(report, status=202)


def get_topic_restore(exchange: Exchange, name: str) -> Answer:
    """Return the progress of a restore, or how it ended."""
    report = local_store(exchange.service.store).topics.last_restore(name)
    if report is None:
        raise TopicRestoreNotFound(
            f"no topic was restored as {name} since the service started", topic=name
        )
    return _answer(report)


def _answer(report: TopicRestore, status: int = 200) -> Answer:
    body = {
        "topic": report.topic,
        "source": report.source,
        "until": report.until_ms,
        "state": report.state.value,
        "partitions": report.partitions,
        "total_bytes": report.total_bytes,
        "restored_bytes": report.restored_bytes,
        "problems": report.problems,
    }
    return json_answer(to_json(body), status=status)
