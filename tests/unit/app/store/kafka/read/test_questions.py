"""Questions of one turn of the loop become one request."""

import asyncio
from collections.abc import Mapping

import pytest
from anyio.lowlevel import checkpoint

from app.store.kafka.errors import Moved
from app.store.kafka.read.reads import Questions

pytestmark = pytest.mark.anyio


async def test_questions_of_one_turn_are_asked_together() -> None:
    """Of each broker; a later question is another request, since its answer must be newer."""
    asked: list[tuple[int, dict[str, int]]] = []

    async def ask(node: int, questions: Mapping[str, int]) -> Mapping[str, int]:
        asked.append((node, dict(questions)))
        await checkpoint()
        return {key: node * value for key, value in questions.items() if key != "lost"}

    questions = Questions(ask)
    answers = await asyncio.gather(
        questions.answer(1, "a", 1),
        questions.answer(1, "b", 2),
        questions.answer(1, "b", 2),
        questions.answer(2, "a", 3),
    )
    assert list(answers) == [1, 2, 2, 6]
    assert asked == [(1, {"a": 1, "b": 2}), (2, {"a": 3})]
    assert await questions.answer(1, "a", 4) == 4
    with pytest.raises(Moved):
        await questions.answer(1, "lost", 1)
