"""Each paragraph of docs/security.md names the tests that attack what it claims."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_durability_page import missing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
NAMED = re.compile(r"(tests/[\w/]+\.py::\w+)")
COMMENT = re.compile(r"<!-- tests: (?:tests/[\w/]+\.py::\w+ )+-->")


def claims(page: str) -> list[str]:
    """The paragraphs and tables of a page; neither headings nor code."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    blocks = [block.strip() for block in prose.split("\n\n")]
    return [block for block in blocks if block and not block.startswith("#")]


def test_each_paragraph_names_its_tests() -> None:
    """A claim that no test attacks is not made."""
    blocks = claims(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) > 30
    without = [block for block in blocks if not COMMENT.fullmatch(block.splitlines()[-1])]
    assert without == []


def test_each_test_that_is_named_exists() -> None:
    """A claim whose test was renamed or removed is one that nothing holds."""
    named = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 80
    assert list(missing(" ".join(f"`{name}`" for name in named))) == []


def test_compose_publishes_on_loopback_only() -> None:
    """Its service has no credentials: other machines must not reach any of its ports."""
    compose = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert "TIDELOG_INSECURE" in compose
    ports = re.findall(r"^ +- \"?([\d.:]+:\d+)\"?$", compose, flags=re.MULTILINE)
    assert len(ports) == 6
    assert all(port.startswith("127.0.0.1:") for port in ports)
