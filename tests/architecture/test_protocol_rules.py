"""The numbered rules of docs/protocol.md: each has its own number, and a test that names it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
TESTS = CHECKOUT / "tests"

RULE = re.compile(r"^\* \*\*([A-Z]\d+)\*\* ", flags=re.MULTILINE)
NAMED = re.compile(r"\(([A-Z]\d+(?:, [A-Z]\d+)*)\)")


def rules() -> list[str]:
    """The numbers of the page, in its order."""
    return RULE.findall((CHECKOUT / "docs" / "protocol.md").read_text(encoding="utf-8"))


def named_in(text: str) -> set[str]:
    """The rules that a docstring names in parentheses, as `(E3)` or `(R1, R5)`."""
    return {rule for found in NAMED.findall(text) for rule in found.split(", ")}


def named_by_tests() -> Iterator[tuple[str, str]]:
    """Each rule that the docstring of a test names, and where."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for rule in named_in(ast.get_docstring(node) or ""):
                    yield rule, f"{path.relative_to(CHECKOUT)}::{node.name}"


def test_every_rule_has_a_number_of_its_own() -> None:
    """Letters are sections and numbers count without a gap, so that a number means one rule."""
    found = rules()
    assert len(found) > 80
    assert len(set(found)) == len(found)
    counts: dict[str, int] = {}
    for rule in found:
        counts[rule[0]] = counts.get(rule[0], 0) + 1
        assert rule == f"{rule[0]}{counts[rule[0]]}"


def test_every_rule_is_named_by_a_test_and_no_test_names_another() -> None:
    """Every protocol rule is named by the test that proves it.

    A removed number is named nowhere.
    """
    tests: dict[str, list[str]] = {}
    for rule, test in named_by_tests():
        tests.setdefault(rule, []).append(test)
    assert set(rules()) - tests.keys() == set()
    assert {rule: named for rule, named in tests.items() if rule not in rules()} == {}


def test_a_name_is_found_in_a_sentence() -> None:
    """Only letters and digits in parentheses are rule numbers, alone or with others."""
    assert named_in("It is refused (E3), and told (R1, R5). B2B is none, (MD5) neither.") == {
        "E3",
        "R1",
        "R5",
    }
