"""Produce requests: the batches of one turn of the event loop go to each broker together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.produce.v9.response import PartitionProduceResponse, ProduceResponse
from kio.schema.types import TopicName
from kio.static.primitive import Records, i16, i32

from app.settings import Settings
from app.store.kafka.cluster import Cluster
from app.store.kafka.errors import NoAnswer, milliseconds
from app.store.kafka.metrics import KafkaMetrics
from engine.errors import Overloaded
from engine.types import TopicPartition

LANES: Final = 2
"""Connections to each broker. A broker answers the requests of one connection in order, so that a
partition that waits for its replicas delays the others of its connection."""
ACKS: Final[Mapping[str, i16]] = {"0": i16(0), "1": i16(1), "all": i16(-1)}
ANSWER_MARGIN_MS: Final = 1_000
"""A broker gives up waiting for replicas this long before the request's time is over here."""


class _Part(NamedTuple):
    """One batch for one partition, in a request that is being gathered."""

    partition: TopicPartition
    records: bytes
    response: asyncio.Future[PartitionProduceResponse | None]


class ProduceRequests:
    """Sends batches, and holds no more of them than a limit. Belongs to the event loop."""

    def __init__(self, settings: Settings, cluster: Cluster, metrics: KafkaMetrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._limit_bytes = settings.max_kafka_produce_bytes
        timeout_ms = min(settings.commit_timeout_ms, settings.kafka_request_timeout_ms)
        self._timeout = milliseconds(max(timeout_ms - ANSWER_MARGIN_MS, timeout_ms // 2))
        self._gathered: dict[tuple[int, str, str], list[_Part]] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def hold(self, size_bytes: int) -> None:
        """Count the bytes of an append until `release`; raises Overloaded beyond the limit."""
        held = self._metrics.in_flight_bytes["produce"]
        if held and held + size_bytes > self._limit_bytes:
            raise Overloaded(
                "the brokers take appends more slowly than they arrive",
                limit="max_kafka_produce_bytes",
                limit_bytes=self._limit_bytes,
            )
        self._metrics.in_flight_bytes["produce"] += size_bytes

    def release(self, size_bytes: int) -> None:
        self._metrics.in_flight_bytes["produce"] -= size_bytes

    def send(
        self, node: int, partition: TopicPartition, acks: str, records: bytes
    ) -> asyncio.Future[PartitionProduceResponse | None]:
        """Send one batch at the end of the loop's turn; None is the response for `acks=0`.

        The future fails with NoAnswer, or with what a request of another version raises.
        """
        loop = asyncio.get_running_loop()
        response: asyncio.Future[PartitionProduceResponse | None] = loop.create_future()
        if not self._gathered:
            loop.call_soon(self._send_gathered)
        lane = f"produce-{partition.partition % LANES}"
        parts = self._gathered.setdefault((node, lane, acks), [])
        parts.append(_Part(partition, records, response))
        return response

    def _send_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for (node, lane, acks), parts in gathered.items():
            while parts:
                # A request has one batch of a partition.
                first = {part.partition: part for part in reversed(parts)}
                together = [part for part in parts if first[part.partition] is part]
                parts = [part for part in parts if first[part.partition] is not part]  # noqa: PLW2901  # the rest
                task = asyncio.create_task(self._send(node, lane, acks, together))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)

    async def _send(self, node: int, lane: str, acks: str, parts: list[_Part]) -> None:
        request = ProduceRequest(
            transactional_id=None,
            acks=ACKS[acks],
            timeout=self._timeout,
            topic_data=tuple(_topic_data(parts)),
        )
        began = monotonic()
        try:
            if acks == "0":
                await self._cluster.send_only(node, request, lane=lane)
                _settle(parts, {part.partition: None for part in parts})
                return
            response = await self._cluster.send(node, request, ProduceResponse, lane=lane)
        except Exception as error:  # noqa: BLE001  # every part gets it
            self._metrics.failed("produce", "no_answer")
            for part in parts:
                if not part.response.done():
                    part.response.set_exception(error)
            return
        self._metrics.answered("produce", node, monotonic() - began)
        answers: dict[TopicPartition, PartitionProduceResponse | None] = {
            TopicPartition(str(topic.name), int(one.index)): one
            for topic in response.responses
            for one in topic.partition_responses
        }
        for answer in answers.values():
            if answer is not None and answer.error_code is not ErrorCode.none:
                self._metrics.failed("produce", answer.error_code.name)
        _settle(parts, answers)

    async def close(self) -> None:
        """Wait for the responses of what was sent."""
        await asyncio.gather(*self._sending, return_exceptions=True)


def _topic_data(parts: list[_Part]) -> list[TopicProduceData]:
    by_topic: dict[str, list[PartitionProduceData]] = {}
    for (topic, number), records, _ in parts:
        data = PartitionProduceData(index=i32(number), records=Records(records))
        by_topic.setdefault(topic, []).append(data)
    return [
        TopicProduceData(name=TopicName(topic), partition_data=tuple(data))
        for topic, data in by_topic.items()
    ]


def _settle(
    parts: list[_Part], answers: Mapping[TopicPartition, PartitionProduceResponse | None]
) -> None:
    for part in parts:
        if part.response.done():  # its request has ended
            continue
        if part.partition in answers:
            part.response.set_result(answers[part.partition])
        else:
            missing = NoAnswer(f"no response for {part.partition}", was_sent=True)
            part.response.set_exception(missing)
