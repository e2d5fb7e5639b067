"""Each promise of docs/durability.md names a test, and the test is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "durability.md"
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def missing(page: str) -> Iterator[str]:
    """Yield the tests that are named and do not exist."""
    for path, name in set(NAMED_TEST.findall(page)):
        file = ROOT / path
        tree = ast.parse(file.read_text()) if file.exists() else ast.Module([], [])
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        if name not in {node.name for node in tree.body if isinstance(node, functions)}:
            yield f"{path}::{name}"


def test_each_test_that_is_named_exists() -> None:
    """A promise whose test was renamed or removed is not tested."""
    page = PAGE.read_text()
    assert len(NAMED_TEST.findall(page)) > 10
    assert list(missing(page)) == []


def test_a_test_that_is_not_there_is_noticed() -> None:
    """Unknown test names and unknown files are both reported."""
    here = "tests/docs/test_durability_page.py"
    page = f"`{here}::test_gone` `tests/gone.py::test_gone`"
    assert sorted(missing(page)) == [f"{here}::test_gone", "tests/gone.py::test_gone"]


def test_each_line_of_the_promises_has_its_test() -> None:
    """No row of the first table is without one."""
    table = PAGE.read_text().split("## Failure", 1)[1].split("##", 1)[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    rows = [row for row in rows if not row.startswith("| ---")]
    assert rows
    assert [row for row in rows if not NAMED_TEST.search(row)] == []
