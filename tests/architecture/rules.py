"""The house style as functions: each rule reads one parsed source file and yields what offends it.

What ruff and mypy can check is left to them. What stands here is ours: limits, who may touch the
operating system, and what a test must be.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

FILE_LINES = 700
POSITIONAL_PARAMETERS = 5
MIN_SENTENCE_WORDS = 4

CALL_THE_SYSTEM = frozenset({"engine/fs/posix.py"})
SYSTEM_MODULES = frozenset(
    "fcntl io mmap os shutil socket subprocess tempfile".split()  # noqa: SIM905 - a list of words
)
PATH_METHODS_WITH_IO = frozenset(
    "glob iterdir read_text rglob rmdir touch unlink write_bytes write_text".split()  # noqa: SIM905 - a list of words
)

SLEEPERS = frozenset({"anyio", "asyncio", "time", "trio"})
SLEEPS = frozenset(f"{module}.sleep" for module in SLEEPERS)
MOMENTS = frozenset(
    {"all_inner_texts", "get_attribute", "inner_text", "is_disabled", "is_enabled", "is_visible"}
)
EXCUSES = frozenset({"importorskip", "skip", "skipif", "xfail"})
EXCUSERS = frozenset({"pytest", "pytest.mark", "unittest"})
BY_KEYWORD = frozenset({"callback", "command", "delete", "get", "head", "patch", "post", "put"})
EMPTY_NAMES = frozenset({"common_utils", "helper", "helpers", "misc", "util", "utils"})

# Written in two halves, so that this file does not offend its own rule.
UNFINISHED = re.compile(
    "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "NotImplemented" + "Error"])
)
EXEMPTION = re.compile(r"#\s*(?:noqa:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*|type:\s*ignore(?:\[[^\]]*\])?)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file: its path relative to the checkout, with forward slashes, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def room(self) -> str:
        return PurePosixPath(self.path).parts[0]

    @property
    def stem(self) -> str:
        return PurePosixPath(self.path).stem

    @property
    def is_test_module(self) -> bool:
        return self.room == "tests" and self.stem.startswith("test_")

    def functions(self) -> Iterator[Function]:
        for node in self.nodes:
            if isinstance(node, Function):
                yield node

    def imports(self) -> Iterator[tuple[int, str]]:
        """Yield the line and the full dotted name of every module imported anywhere in the file."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                yield node.lineno, node.module

    def calls(self) -> Iterator[ast.Call]:
        for node in self.nodes:
            if isinstance(node, ast.Call):
                yield node

    def at(self, node: ast.stmt | ast.expr) -> str:
        return f"{self.path}:{node.lineno}"


Rule = Callable[[Source], Iterator[str]]


def file_is_short(source: Source) -> Iterator[str]:
    """A file has at most 700 lines."""
    if len(source.lines) > FILE_LINES:
        yield f"{source.path}: {len(source.lines)} lines, at most {FILE_LINES}"


def parameters_are_few(source: Source) -> Iterator[str]:
    """A function takes at most five positional parameters, unless a framework names them."""
    for function in source.functions():
        if source.is_test_module or _is_called_by_keyword(function):
            continue
        names = [argument.arg for argument in function.args.posonlyargs + function.args.args]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        if len(names) > POSITIONAL_PARAMETERS:
            yield f"{source.at(function)}: {function.name} takes {len(names)} positional parameters"


def _is_called_by_keyword(function: Function) -> bool:
    """Say whether a router or the command line calls it, which both pass arguments by name."""
    return any(
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Attribute)
        and decorator.func.attr in BY_KEYWORD
        for decorator in function.decorator_list
    )


def system_is_called_in_one_place(source: Source) -> Iterator[str]:
    """In the engine only the modules of the file system touch the operating system."""
    if source.room != "engine" or source.path in CALL_THE_SYSTEM:
        return
    for line, module in source.imports():
        if module.partition(".")[0] in SYSTEM_MODULES:
            yield f"{source.path}:{line}: imports {module}"
    for node in source.calls():
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            yield f"{source.at(node)}: calls open()"
        elif isinstance(node.func, ast.Attribute) and node.func.attr in PATH_METHODS_WITH_IO:
            yield f"{source.at(node)}: calls Path.{node.func.attr}()"


def tests_are_not_imported(source: Source) -> Iterator[str]:
    """Only tests import tests."""
    if source.room == "tests":
        return
    for line, module in source.imports():
        if module.partition(".")[0] == "tests":
            yield f"{source.path}:{line}: imports {module}"


def tests_do_not_sleep(source: Source) -> Iterator[str]:
    """A test waits for an event or moves a clock by hand; it never sleeps."""
    if source.room != "tests":
        return
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and node.module in SLEEPERS:
            if any(alias.name == "sleep" for alias in node.names):
                yield f"{source.at(node)}: imports sleep"
        elif (
            isinstance(node, ast.Attribute)
            and node.attr == "sleep"  # asked first: spelling out every attribute takes long
            and ast.unparse(node) in SLEEPS
        ):
            yield f"{source.at(node)}: sleeps"


def browsers_are_asked_with_patience(source: Source) -> Iterator[str]:
    """What a page shows is awaited with `expect`: at one moment it may not have been drawn yet."""
    if not source.path.startswith("tests/console/"):
        return
    for statement in source.nodes:
        if not isinstance(statement, ast.Assert):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and node.attr in MOMENTS:
                yield f"{source.at(node)}: {node.attr} of one moment"


def tests_are_not_excused(source: Source) -> Iterator[str]:
    """No test is skipped or expected to fail; a foreign tool is asked for with `needs`."""
    if source.room != "tests":
        return
    for node in source.nodes:
        if (
            isinstance(node, ast.Attribute)
            and node.attr in EXCUSES
            and ast.unparse(node.value) in EXCUSERS
        ):
            yield f"{source.at(node)}: uses {ast.unparse(node)}"


def tests_do_not_mock(source: Source) -> Iterator[str]:
    """A test gives real collaborators or small fakes of a port, never mocks."""
    if source.room != "tests":
        return
    for line, module in source.imports():
        if module in {"mock", "unittest.mock", "pytest_mock"}:
            yield f"{source.path}:{line}: imports {module}"


def tests_have_a_sentence(source: Source) -> Iterator[str]:
    """Every test function says in one sentence what it proves."""
    if not source.is_test_module:
        return
    for function in source.functions():
        if not function.name.startswith("test_"):
            continue
        sentence = (ast.get_docstring(function) or "").split("\n\n")[0]
        if not sentence.endswith(".") or len(sentence.split()) < MIN_SENTENCE_WORDS:
            yield f"{source.at(function)}: {function.name} has no sentence"


def nothing_is_unfinished(source: Source) -> Iterator[str]:
    """What is not done is not in the tree."""
    for number, line in enumerate(source.lines, start=1):
        if match := UNFINISHED.search(line):
            yield f"{source.path}:{number}: {match.group()}"


def exemptions_have_a_reason(source: Source) -> Iterator[str]:
    """Every exemption from a checker has a reason, on its line or in a comment right above it."""
    for number, line in enumerate(source.lines, start=1):
        match = EXEMPTION.search(line)
        if match is None or line[match.end() :].strip(" -:#"):
            continue
        above = source.lines[number - 2].lstrip() if number > 1 else ""
        if not above.startswith("#"):
            yield f"{source.path}:{number}: {match.group()} without a reason"


def names_say_something(source: Source) -> Iterator[str]:
    """No module is called utils or helpers, and the only manager is the LogManager."""
    if source.stem in EMPTY_NAMES:
        yield f"{source.path}: the name says nothing"
    for node in source.nodes:
        if not isinstance(node, ast.ClassDef) or node.name == "LogManager":
            continue
        if node.name.endswith(("Helper", "Manager", "Util", "Utils")):
            yield f"{source.at(node)}: {node.name} says nothing"


def braces_are_filled(source: Source) -> Iterator[str]:
    """No part of an f-string has a name in braces that is printed as it stands."""
    for node in source.nodes:
        if not isinstance(node, ast.JoinedStr):
            continue
        for part in node.values:
            text = part.value if isinstance(part, ast.Constant) else ""
            for name in re.findall(r"\{[A-Za-z_][\w.]*\}", str(text)):
                written = ast.get_source_segment(source.text, node) or ""
                if "{" + name + "}" not in written:  # doubled on purpose
                    yield f"{source.path}:{node.lineno}: {name}"


def strings_stand_under_their_field(source: Source) -> Iterator[str]:
    """A string that explains a field stands right under it, and nowhere else."""
    for node in source.nodes:
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if not isinstance(body, list):
                continue
            for before, statement in zip([None, *body], body, strict=False):
                if not _is_string(statement):
                    continue
                is_docstring = before is None and isinstance(
                    node, ast.Module | ast.ClassDef | Function
                )
                is_of_field = isinstance(before, ast.Assign | ast.AnnAssign) and (
                    before.end_lineno == statement.lineno - 1
                )
                if not (is_docstring or is_of_field):
                    yield f"{source.at(statement)}: a string that explains nothing above it"


def _is_string(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


RULES: tuple[Rule, ...] = (
    braces_are_filled,
    file_is_short,
    parameters_are_few,
    system_is_called_in_one_place,
    tests_are_not_imported,
    tests_do_not_sleep,
    browsers_are_asked_with_patience,
    tests_are_not_excused,
    tests_do_not_mock,
    tests_have_a_sentence,
    nothing_is_unfinished,
    exemptions_have_a_reason,
    names_say_something,
    strings_stand_under_their_field,
)
