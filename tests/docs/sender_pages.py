"""The pages of `docs/ingest`: their blocks, and where on the page a sender sends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.docs.snippets import ADDRESS, Snippet, snippets_in
from tests.support.captures import Capture, captures

FOLDER: Final = Path(__file__).parents[2] / "docs" / "ingest"

_SENT: Final = re.compile(r"<!-- sent: ([\w -]+) -->\n")


def page_names() -> list[str]:
    return sorted(path.name for path in FOLDER.glob("*.md"))


def steps_of(page: str, url: str) -> Iterator[Snippet | Capture]:
    """Yield the blocks of a page with the address of this service, and what is sent between."""
    before, *parts = _SENT.split((FOLDER / page).read_text().replace(ADDRESS, url))
    yield from snippets_in(before)
    for names, text in zip(parts[::2], parts[1::2], strict=True):
        for name in names.split():
            yield captures()[name]
        yield from snippets_in(text)


def settings_of(page: str, language: str, url: str) -> str:
    """Return the configuration of the sender, the one block of the page in this language."""
    (block,) = [
        step
        for step in steps_of(page, url)
        if isinstance(step, Snippet) and step.language == language
    ]
    return block.code
