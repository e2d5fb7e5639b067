"""What was fed to the parsers by hand and by the fuzzer, fed to them again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import beside, bodies, ingest  # noqa: F401  # each brings its targets
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
MOST_BYTES = 512 * 1024


@pytest.fixture(scope="module", autouse=True)
def _closed_service() -> Iterator[None]:
    yield
    bodies.close()


@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_that_were_ever_tried_break_a_promise(name: str) -> None:
    """Each file of the corpus, cut short too, is answered or refused as the parser promises."""
    files = sorted((CORPUS / name).iterdir())
    assert files, "a target without a corpus is fed nothing"
    for file in files:
        content = file.read_bytes()
        TARGETS[name](content)
        TARGETS[name](content[: len(content) // 2])


def test_the_corpus_is_small() -> None:
    """It travels with every clone, and each of its files belongs to a target."""
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    assert {path.parent.name for path in files} == set(TARGETS)
