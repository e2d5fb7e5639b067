"""Where the engine and the Spark job sync, rename or lock, and the source with a place changed.

A site is named by its file, its function and its own text, so that its name outlives a change
elsewhere in the file.
"""

from __future__ import annotations

import ast
import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCES: Final = ("engine", "pyspark_tidelog")

CALLS: Final = frozenset(
    {
        "change_suffix",
        "fdatasync",
        "flush",
        "fsync",
        "rename",
        "rename_directory",
        "replace",
        "replace_atomically",
        "sync",
        "sync_all",
        "sync_directory",
        "sync_end",
        "sync_file",
        "sync_folder",
        "syncfs",
        "_sync",
        "_sync_data",
    }
)
"""Functions and methods that sync or rename, called for that alone: as a statement."""

LOCKS: Final = frozenset({"Lock"})

REACHED: Final = "tests.mutants.reached"

NO_LOCK: Final = "__import__('contextlib').nullcontext()"


class Kind(enum.Enum):
    """What is done to a site."""

    REMOVED = "removed"
    LATER = "moved behind the next statement"
    UNLOCKED = "not locked"


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: str
    function: str
    text: str
    number: int
    """Which of equal texts in the function, from 0 on."""
    kind: Kind

    @property
    def name(self) -> str:
        number = f" #{self.number}" if self.number else ""
        return f"{self.path} {self.function}: {self.text}{number} {self.kind.value}"


def all_mutants(root: Path) -> list[Mutant]:
    """Return every mutant of the sources under `root`, in the order of files and lines."""
    paths = [path for source in SOURCES for path in sorted((root / source).rglob("*.py"))]
    trees = {path.relative_to(root).as_posix(): ast.parse(path.read_text()) for path in paths}
    locks = {name for tree in trees.values() for name in _lock_names(tree)}
    return [mutant for path, tree in trees.items() for mutant, *_ in _found(path, tree, locks)]


def mutated(root: Path, mutant: Mutant) -> str:
    """Return the source of the mutant's file with the change made."""
    return ast.unparse(mutated_tree(root, mutant)) + "\n"


def mutated_tree(root: Path, mutant: Mutant) -> ast.Module:
    """Return the mutant's file with the change made; line numbers stay what they were."""
    tree = ast.parse((root / mutant.path).read_text())
    locks = {mutant.text} if mutant.kind is Kind.UNLOCKED else set()
    names = {name.rpartition(".")[2] for name in locks}
    for found, block, index in _found(mutant.path, tree, names):
        if found == mutant:
            _change(found.kind, block, index, mutant.text)
            return ast.fix_missing_locations(tree)
    raise LookupError(mutant.name)


def instrumented_tree(root: Path, path: str, numbers: Mapping[Mutant, int]) -> ast.Module:
    """Return a file in which each site reports to `reached` under its mutant's number."""
    tree = ast.parse((root / path).read_text())
    locks = {mutant.text.rpartition(".")[2] for mutant in numbers if mutant.kind is Kind.UNLOCKED}
    found = list(_found(path, tree, locks))
    for mutant, block, index in sorted(found, key=lambda one: -one[2]):
        text = f"__import__('{REACHED}', fromlist=['hit']).hit({numbers[mutant]})"
        block.insert(index, ast.copy_location(ast.parse(text).body[0], block[index]))
    return ast.fix_missing_locations(tree)


def _lock_names(tree: ast.AST) -> Iterator[str]:
    """Yield the attributes and names that are given a lock."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            made = node.value.func
            kind = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if kind in LOCKS:
                yield from (target.attr for target in targets if isinstance(target, ast.Attribute))
                yield from (target.id for target in targets if isinstance(target, ast.Name))


Block = list[ast.stmt]


def _found(path: str, tree: ast.AST, locks: set[str]) -> Iterator[tuple[Mutant, Block, int]]:
    """Yield each mutant with the block of statements and the index it is about."""
    seen: Counter[tuple[str, str, Kind]] = Counter()
    for function, block in _blocks(tree, ""):
        for index, statement in enumerate(block):
            for kind, text in _kinds(statement, block[index + 1 :], locks):
                key = (function, text, kind)
                yield Mutant(path, function, text, seen[key], kind), block, index
                seen[key] += 1


def _blocks(node: ast.AST, function: str) -> Iterator[tuple[str, Block]]:
    """Yield every list of statements with the name of the function it lies in."""
    for field in ("body", "orelse", "finalbody", "handlers"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            if block and isinstance(block[0], ast.stmt):
                yield function, block
            for child in block:
                inner = function
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    inner = f"{function}.{child.name}" if function else child.name
                yield from _blocks(child, inner)


def _kinds(
    statement: ast.stmt, following: Sequence[ast.stmt], locks: set[str]
) -> Iterator[tuple[Kind, str]]:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in CALLS:
            text = ast.unparse(statement)
            yield Kind.REMOVED, text
            if following and not isinstance(following[0], ast.Return | ast.Raise | ast.Break):
                yield Kind.LATER, text
    if isinstance(statement, ast.With):
        for item in statement.items:
            text = ast.unparse(item.context_expr)
            owner, _, name = text.rpartition(".")
            if name in locks and not owner.endswith("health"):  # its guards are not locks
                yield Kind.UNLOCKED, text


def _change(kind: Kind, block: Block, index: int, text: str) -> None:
    statement = block[index]
    if kind is Kind.REMOVED:
        block[index] = ast.Pass()
    elif kind is Kind.LATER:
        block[index], block[index + 1] = block[index + 1], statement
    else:
        assert isinstance(statement, ast.With)
        for item in statement.items:
            if ast.unparse(item.context_expr) == text:
                item.context_expr = ast.parse(NO_LOCK, mode="eval").body
