"""The rows that Kafka's tests check, and which test here names which of them."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[2]
ROWS = Path(__file__).with_name("rows.toml")

_LIST = re.compile(r"\(([^()]*)\)\.?\Z")
_BARE = re.compile(r"(test|should|check)[A-Z]\w*")


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
    """A test of ours and the names in the last parentheses of its docstring."""

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
                for full in self.known.get(name, ()):
                    found.setdefault(full, []).append(test)
        return found

    @cached_property
    def known(self) -> dict[str, frozenset[str]]:
        """What a docstring may write: a full name, or the part after the class if it is unique."""
        full = {name for section in self.sections for row in section.rows for name in row.names}
        by_part: dict[str, set[str]] = {name: {name} for name in full}
        for name in full:
            by_part.setdefault(name.rpartition(".")[2], set()).add(name)
        return {part: frozenset(names) for part, names in by_part.items() if len(names) == 1}

    def tests_of(self, row: Row) -> list[NamingTest]:
        """The tests that name any of the row's names, each once."""
        tests = [test for name in row.names for test in self.tests_by_name.get(name, ())]
        return sorted(set(tests), key=lambda test: (test.path, test.function))

    def faults(self) -> Iterator[str]:
        """What is wrong: names that are no row's, rows without test or reason, stale reasons."""
        for test in self.tests:
            for name in test.names:
                if name not in self.known:
                    yield f"{test.path}::{test.function} names {name}, which is no row"
        for section in self.sections:
            for row in section.rows:
                is_tested = bool(self.tests_of(row))
                if is_tested and row.reason is not None:
                    yield f"{row.names[0]} has a test, and a reason why it has none"
                if not is_tested and row.reason is None:
                    yield f"{section.title}: {row.names[0]} has neither a test nor a reason"


@dataclass
class _Names:
    """The prefixes that make a word in a docstring the name of a row."""

    prefixes: frozenset[str] = field(default_factory=frozenset)

    def of(self, docstring: str) -> tuple[str, ...]:
        listed = _LIST.search(" ".join(docstring.split()))
        if listed is None:
            return ()
        words = (word.strip() for word in listed[1].split(","))
        return tuple(word for word in words if self._is_name(word))

    def _is_name(self, word: str) -> bool:
        prefix, dot, _ = word.partition(".")
        return prefix in self.prefixes if dot else _BARE.fullmatch(word) is not None


def load_matrix(rows: Path = ROWS, checkout: Path = CHECKOUT) -> Matrix:
    """Read the rows, and the docstring of every test of the checkout."""
    sections = tuple(_sections(tomllib.loads(rows.read_text(encoding="utf-8"))))
    names = (name for section in sections for row in section.rows for name in row.names)
    prefixes = frozenset(name.partition(".")[0] for name in names if "." in name)
    paths = sorted((checkout / "tests").rglob("test_*.py"))
    return Matrix(sections, tuple(_naming_tests(paths, checkout, _Names(prefixes))))


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


def _naming_tests(paths: Iterable[Path], checkout: Path, names: _Names) -> Iterator[NamingTest]:
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if not node.name.startswith("test_"):
                continue
            named = names.of(ast.get_docstring(node) or "")
            if named:
                yield NamingTest(path.relative_to(checkout).as_posix(), node.name, named)
