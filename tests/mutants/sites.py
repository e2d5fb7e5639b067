"""The places that are changed, syncs, renames, locks and any expression, and the changed source.

A site is named by its file, its function and its own text, so that its name outlives a change
elsewhere in the file.
"""

from __future__ import annotations

import ast
import enum
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

SOURCES: Final = ("engine", "pyspark_tidelog", "app")

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
    COMPARED = "compared otherwise"
    COUNTED = "counted otherwise"
    JOINED = "and for or, or for and"
    AFFIRMED = "without its not"
    NUMBERED = "one for zero, zero for one"
    FLIPPED = "true for false, false for true"
    OMITTED = "not called"
    TURNED = "the other branch"


OF_SYNCS: Final = frozenset({Kind.REMOVED, Kind.LATER, Kind.UNLOCKED})

_OTHER_COMPARISON: Final = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OTHER_ARITHMETIC: Final = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
}


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
    """Return every mutant of a sync, rename or lock, in the order of files and lines."""
    return _every(root, is_any=False)


def any_mutants(root: Path) -> list[Mutant]:
    """Return every mutant of an expression, a call or a branch in a function."""
    return _every(root, is_any=True)


def _every(root: Path, *, is_any: bool) -> list[Mutant]:
    paths = [path for source in SOURCES for path in sorted((root / source).rglob("*.py"))]
    trees = {path.relative_to(root).as_posix(): ast.parse(path.read_text()) for path in paths}
    locks = {name for tree in trees.values() for name in _lock_names(tree)}
    return [
        mutant
        for path, tree in trees.items()
        for mutant, *_ in _found(path, tree, locks, is_any=is_any)
    ]


def mutated(root: Path, mutant: Mutant) -> str:
    """Return the source of the mutant's file with the change made."""
    return ast.unparse(mutated_tree(root, mutant)) + "\n"


def mutated_tree(root: Path, mutant: Mutant) -> ast.Module:
    """Return the mutant's file with the change made; line numbers stay what they were."""
    tree = ast.parse((root / mutant.path).read_text())
    locks = {mutant.text} if mutant.kind is Kind.UNLOCKED else set()
    names = {name.rpartition(".")[2] for name in locks}
    is_any = mutant.kind not in OF_SYNCS
    for found, _, _, change in _found(mutant.path, tree, names, is_any=is_any):
        if found == mutant:
            change()
            return ast.fix_missing_locations(tree)
    raise LookupError(mutant.name)


def instrumented_tree(root: Path, path: str, numbers: Mapping[Mutant, int]) -> ast.Module:
    """Return a file in which each site reports to `reached` under its mutant's number."""
    tree = ast.parse((root / path).read_text())
    locks = {mutant.text.rpartition(".")[2] for mutant in numbers if mutant.kind is Kind.UNLOCKED}
    found = [
        one
        for is_any in {mutant.kind not in OF_SYNCS for mutant in numbers}
        for one in _found(path, tree, locks, is_any=is_any)
        if one[0] in numbers
    ]
    for mutant, block, index, _ in sorted(found, key=lambda one: -one[2]):
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
Change = Callable[[], None]


def _found(
    path: str, tree: ast.AST, locks: set[str], *, is_any: bool
) -> Iterator[tuple[Mutant, Block, int, Change]]:
    """Yield each mutant with the statements and the index it is about, and what changes it."""
    seen: Counter[tuple[str, str, Kind]] = Counter()
    for function, block, is_run in [*_blocks(tree, "", is_run=False)]:
        for index in range(len(block)):
            if is_any:
                changes = _edits(block, index) if is_run else iter(())
            else:
                changes = _of_syncs(block, index, locks) if _is_durable(path) else iter(())
            for kind, text, change in [*changes]:
                key = (function, text, kind)
                yield Mutant(path, function, text, seen[key], kind), block, index, change
                seen[key] += 1


def _is_durable(path: str) -> bool:
    return not path.startswith("app/")  # it syncs nothing itself


def _blocks(node: ast.AST, function: str, *, is_run: bool) -> Iterator[tuple[str, Block, bool]]:
    """Yield every list of statements with the name of the function or class it lies in.

    And whether it runs when a function is called, not when the module is loaded.
    """
    for field in ("body", "orelse", "finalbody", "handlers"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            if block and isinstance(block[0], ast.stmt):
                yield function, block, is_run
            for child in block:
                inner, runs = function, is_run
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    inner = f"{function}.{child.name}" if function else child.name
                    runs = not isinstance(child, ast.ClassDef)
                yield from _blocks(child, inner, is_run=runs)


def _of_syncs(block: Block, index: int, locks: set[str]) -> Iterator[tuple[Kind, str, Change]]:
    statement, following = block[index], block[index + 1 : index + 2]
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in CALLS:
            text = ast.unparse(statement)
            yield Kind.REMOVED, text, lambda: block.__setitem__(index, ast.Pass())
            if following and not isinstance(following[0], ast.Return | ast.Raise | ast.Break):
                exchanged = [*following, statement]
                yield (
                    Kind.LATER,
                    text,
                    lambda: block.__setitem__(slice(index, index + 2), exchanged),
                )
    if isinstance(statement, ast.With):
        for item in statement.items:
            text = ast.unparse(item.context_expr)
            owner, _, name = text.rpartition(".")
            if name in locks and not owner.endswith("health"):  # its guards are not locks
                free = ast.parse(NO_LOCK, mode="eval").body
                yield Kind.UNLOCKED, text, partial(setattr, item, "context_expr", free)


def _edits(block: Block, index: int) -> Iterator[tuple[Kind, str, Change]]:
    """Yield what may be changed in one statement, without the statements inside it."""
    statement = block[index]
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        text = ast.unparse(statement)
        yield Kind.OMITTED, text, lambda: block.__setitem__(index, ast.Pass())
    if isinstance(statement, ast.If):
        turned = ast.UnaryOp(ast.Not(), statement.test)
        yield Kind.TURNED, ast.unparse(statement.test), partial(setattr, statement, "test", turned)
    for node in _expressions(statement):
        if (found := _edit(node)) is not None:
            kind, field, value = found
            yield kind, ast.unparse(node), partial(setattr, node, field, value)


def _edit(node: ast.expr) -> tuple[Kind, str, object] | None:
    """Return how an expression is changed: the kind, and the new value of one of its fields."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _OTHER_COMPARISON:
            return Kind.COMPARED, "ops", [_OTHER_COMPARISON[type(op)]()]
        case ast.BinOp(op=op) if type(op) in _OTHER_ARITHMETIC and not _is_text(node):
            return Kind.COUNTED, "op", _OTHER_ARITHMETIC[type(op)]()
        case ast.BoolOp(op=op):
            return Kind.JOINED, "op", ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not()):  # a second one: the line numbers stay
            return Kind.AFFIRMED, "operand", ast.UnaryOp(ast.Not(), node.operand)
        case ast.Constant(value=bool() as value):
            return Kind.FLIPPED, "value", not value
        case ast.Constant(value=int() as value) if value in {0, 1}:
            return Kind.NUMBERED, "value", 1 - value
    return None


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of a statement, not those of statements inside it, nor annotations."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.expr) and field not in {"annotation", "returns"}:
                yield child
            if isinstance(child, ast.AST) and not isinstance(child, ast.stmt):
                yield from _expressions(child)
