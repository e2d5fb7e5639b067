"""Plays from seeds: one question, asked before, beside and after changes of the log."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

from app.http.answers import App
from app.operations.service import Service
from app.server.process import compose
from tests.interleavings.service.changes import OVERRIDES, PARTS
from tests.interleavings.service.interruption import Interruption
from tests.interleavings.service.judging import ensure_equal_tags, judge, told
from tests.interleavings.service.questions import Answer, Question, drawn, offset_of_group
from tests.interleavings.service.truth import Truth
from tests.support.service import local, open_in_memory

IDLE_S: Final = 0.02
"""After this time without an answer the request waits for the log."""
MOST_WAITS: Final = 200
LINES: Final = 500
"""About as many lines of `app` as a read passes."""


@dataclass
class Stage:
    """A service that many plays share, each with a topic of its own."""

    service: Service
    app: App
    interruption: Interruption


@dataclass
class Play:
    """One play and its report."""

    seed: int
    operations: Collection[str]
    """Those that were drawn from; empty for all."""
    question: Question | None = None
    parts: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    error: BaseException | None = None

    def __str__(self) -> str:
        assert self.error is not None
        return "\n".join(
            [
                f"seed {self.seed} failed: {self.error!r}",
                "".join(traceback.format_exception(self.error)[-4:]),
                f"  {self.question}",
                *(
                    f"  {part} at {place}"
                    for part, place in zip(self.parts, self.where, strict=False)
                ),
                *(f"  {told(answer)}" for answer in self.answers),
                f"again: make interleavings OF=service SEED={self.seed} RUNS=1"
                + f" WORKS={','.join(self.operations)}" * bool(self.operations),
            ]
        )


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    """A service on a disk in memory, all of whose threads are watched."""
    interruption = Interruption()
    with interruption.watching():
        async with open_in_memory(commit_interval_ms=600_000) as service:
            yield Stage(service, compose(service), interruption)


async def play(stage: Stage, seed: int, operations: Collection[str] = ()) -> Play:
    """Play a seed with one of the operations; the result says what was wrong, if anything."""
    random = Random(f"service {seed}")
    one = Play(seed, operations)
    topic = f"t{seed}"
    try:
        await _play(stage, random, one, Truth(stage.service, topic))
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the failure to look for
        one.error = error
    manager = local(stage.service).manager
    if topic in manager.topics():
        manager.delete_topic(topic)
        stage.service.forget(topic)
    return one


async def _play(stage: Stage, random: Random, one: Play, truth: Truth) -> None:
    await asyncio.to_thread(_begin, truth, random)
    log = truth.log
    assert log is not None
    marks = log.watermarks
    question = one.question = drawn(
        random,
        one.operations,
        truth.topic,
        log.reader.log_id,
        (marks.log_start_offset, marks.high_watermark),
    )
    app = stage.app
    await ask(app, offset_of_group(truth.topic), stage.interruption, truth)
    seen: dict[tuple[str, str], bytes] = {}
    one.parts = random.choices(list(PARTS), k=random.randint(1, 3))
    parts = [partial(PARTS[name], truth, Random(random.random())) for name in one.parts]
    at = sorted(random.randint(1, LINES) for _ in parts)
    is_waiting = "max_wait_ms" in question.url or b"max_wait_ms" in question.body
    change = list(zip(at, parts, strict=True))
    interruption = stage.interruption
    for meanwhile in [change] if is_waiting else [[], change, []]:  # nothing else ends a wait
        interruption.arm(meanwhile)
        try:
            answer = await ask(app, question, interruption, truth)
        finally:
            await asyncio.to_thread(interruption.disarm)
        one.where += interruption.where
        one.answers.append(answer)
        truth.look()
        judge(truth, question, answer)
        ensure_equal_tags(seen, question, answer)


def _begin(truth: Truth, random: Random) -> None:
    """Make the topic and a few segments of records."""
    local(truth.service).manager.create_topic(truth.topic, 1, OVERRIDES)
    for _ in range(random.randint(2, 7)):
        truth.append(random.randint(1, 4))
    if random.random() < 0.3:
        PARTS["delete_records"](truth, random)
    truth.look()


async def ask(app: App, question: Question, interruption: Interruption, truth: Truth) -> Answer:
    """Ask; do the next part of the change, or append, whenever the request waits."""
    url = urlsplit(question.url)
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": question.method,
        "scheme": "http",
        "path": url.path,
        "raw_path": url.path.encode(),
        "query_string": url.query.encode(),
        "root_path": "",
        "headers": [(b"host", b"localhost")]
        + [(name.encode(), value.encode()) for name, value in question.headers.items()],
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
    }
    if question.body:
        scope["headers"].append((b"content-length", b"%d" % len(question.body)))
    answer = Answer(0, {}, b"")
    gone = asyncio.Event()
    requests = [{"type": "http.request", "body": question.body, "more_body": False}]

    async def receive() -> Any:
        if requests:
            return requests.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
        else:
            answer.body += bytes(message.get("body", b""))
            answer.is_whole = not message.get("more_body", False)

    task = asyncio.ensure_future(app(scope, receive, send))
    for _ in range(MOST_WAITS):
        done, _ = await asyncio.wait({task}, timeout=IDLE_S)
        if done:
            break
        if await asyncio.to_thread(interruption.do_next):
            continue
        if question.is_endless:
            gone.set()
        else:
            await asyncio.to_thread(truth.look)
            await asyncio.to_thread(truth.append, 40)
            await asyncio.to_thread(truth.look)
    assert task.done(), "no answer"
    task.result()
    return answer
