"""The rows that Kafka's tests check, and which test here is marked with which of them."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[2]
ROWS = Path(__file__).with_name("rows.toml")


@dataclass(frozen=True)
class Row:
    """One behaviour: the Kafka tests that check it, and why it has no test here, if so."""

    names: tuple[str, ...]
    says: str
    note: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Section:
    """Rows about one part of the log, in the order of the specification."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class NamingTest:
    """A test of ours and the names in its marker `@kafka`."""

    path: str
    function: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Matrix:
    """Sections with their rows, and the tests that name them."""

    sections: tuple[Section, ...]
    tests: tuple[NamingTest, ...]

    @cached_property
    def tests_by_name(self) -> dict[str, list[NamingTest]]:
        """The tests that prove each row name; names without a test are missing."""
        found: dict[str, list[NamingTest]] = {}
        for test in self.tests:
            for name in test.names:
                found.setdefault(name, []).append(test)
        return found

    def tests_of(self, row: Row) -> list[NamingTest]:
        """The tests that name any of the row's names, each once."""
        tests = [test for name in row.names for test in self.tests_by_name.get(name, ())]
        return sorted(set(tests), key=lambda test: (test.path, test.function))

    def faults(self) -> Iterator[str]:
        """Yield the faults: unknown names, rows without test or reason, stale reasons."""
        known = {name for section in self.sections for row in section.rows for name in row.names}
        for test in self.tests:
            for name in test.names:
                if name not in known:
                    yield f"{test.path}::{test.function} names {name}, which is not a row"
        for section in self.sections:
            for row in section.rows:
                is_tested = bool(self.tests_of(row))
                if is_tested and row.reason is not None:
                    yield f"{row.names[0]} has a test, and a reason why it has none"
                if not is_tested and row.reason is None:
                    yield f"{section.title}: {row.names[0]} has neither a test nor a reason"


def load_matrix(rows: Path = ROWS, checkout: Path = CHECKOUT) -> Matrix:
    """Read the rows, and the markers of every test of the checkout."""
    sections = tuple(_sections(tomllib.loads(rows.read_text(encoding="utf-8"))))
    paths = sorted((checkout / "tests").rglob("test_*.py"))
    return Matrix(sections, tuple(_naming_tests(paths, checkout)))


def _sections(document: dict[str, Any]) -> Iterator[Section]:
    for section in document["section"]:
        rows = tuple(
            Row(
                tuple(name.strip() for name in row["row"].split(",")),
                row["says"],
                row.get("note"),
                row.get("reason"),
            )
            for row in section["rows"]
        )
        yield Section(section["title"], rows)


def _naming_tests(paths: Iterable[Path], checkout: Path) -> Iterator[NamingTest]:
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = tuple(_marked(node.decorator_list))
                if names:
                    yield NamingTest(path.relative_to(checkout).as_posix(), node.name, names)


def _marked(decorators: Iterable[ast.expr]) -> Iterator[str]:
    for decorator in decorators:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "kafka":
            yield from map(ast.literal_eval, decorator.args)
