"""The pages of the documentation: width of their lines, and what they name exists."""

import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
COLUMNS = 100

# The other side of a link is not counted: it is not read, and cannot be broken.
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FOLDERS = "app|bench|demo|deploy|distributions|docs|engine|openapi|pyspark_tidelog|schemas|tests"
FILE = re.compile(rf"(?:{FOLDERS})/[\w./-]*")
DOTTED = re.compile(r"(?<![\w./-])(?:app|engine|pyspark_tidelog)(?:\.[A-Za-z_]\w*)+")

Rule = Callable[[str, str], Iterator[str]]


def pages() -> list[str]:
    """Every page that people read, relative to the checkout."""
    documentation = sorted(path.relative_to(CHECKOUT) for path in (CHECKOUT / "docs").rglob("*.md"))
    own = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
    return [*own, *map(str, documentation)]


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a page that are neither code, nor a table, nor a comment."""
    is_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        is_fence = line.lstrip().startswith("```")
        if not (is_code or is_fence or line.startswith(("|", "<!--"))):
            yield number, line
        is_code ^= is_fence


def lines_are_narrow(page: str, text: str) -> Iterator[str]:
    """A line of prose has at most 100 columns, unless it is one name or address."""
    for number, line in prose(text):
        shown = LINK.sub("]", line)
        if len(shown) > COLUMNS and len(shown.removeprefix("* ").split()) > 1:
            yield f"{page}:{number}: {len(shown)} columns"


def paths_exist(page: str, text: str) -> Iterator[str]:
    """A path in backticks is a file or folder of the repository."""
    for name in sorted(set(CODE.findall(text))):
        path = name.partition("::")[0]
        if FILE.fullmatch(path) and not (CHECKOUT / path).exists():
            yield f"{page}: {path}"


def modules_exist(page: str, text: str) -> Iterator[str]:
    """A dotted name of ours is a module, or what is defined in one."""
    for name in sorted(set(DOTTED.findall(text))):
        if not is_defined(name):
            yield f"{page}: {name}"


def links_lead_somewhere(page: str, text: str) -> Iterator[str]:
    """A link to another page of the repository finds it."""
    for target in sorted(set(LINK.findall(text))):
        path = target.partition("#")[0]
        if path and "://" not in path and not (CHECKOUT / page).parent.joinpath(path).exists():
            yield f"{page}: {target}"


@cache
def is_defined(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


RULES: tuple[Rule, ...] = (
    lines_are_narrow,
    paths_exist,
    modules_exist,
    links_lead_somewhere,
)

OFFENCES: list[tuple[Rule, str]] = [
    (lines_are_narrow, "word " * 21),
    (lines_are_narrow, "```sh\nls\n```\n" + "word " * 21),
    (paths_exist, "`app/gone.py`"),
    (paths_exist, "`tests/gone.py::test_gone`"),
    (modules_exist, "```text\nengine.log.gone\n```"),
    (modules_exist, "`engine.log.log.Log.gone`"),
    (links_lead_somewhere, "[gone](gone.md#there)"),
]

ALLOWED: list[tuple[Rule, str]] = [
    (lines_are_narrow, "| " + "word " * 21),
    (lines_are_narrow, "```sh\n" + "word " * 21 + "\n```"),
    (lines_are_narrow, "see [the page](" + "long/" * 20 + ")"),
    (lines_are_narrow, "* `" + "long/" * 20 + "`."),
    (paths_exist, "`app/cli.py` `engine/log` `/v1/app/gone` `tests/interop/golden/`"),
    (modules_exist, "`engine.log.log.Log.append`, `engine.clock`; message.engine.gone"),
    (links_lead_somewhere, "[here](README.md#there) [there](https://example.org/gone)"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_pages_keep_the_rule(rule: Rule) -> None:
    """No page of the documentation breaks the rule."""
    texts = {page: (CHECKOUT / page).read_text(encoding="utf-8") for page in pages()}
    offending = [offence for page, text in texts.items() for offence in rule(page, text)]
    assert not offending, "\n".join([f"{rule.__doc__}", *offending])


@pytest.mark.parametrize(("rule", "text"), OFFENCES)
def test_the_rule_reports_an_offence(rule: Rule, text: str) -> None:
    """A page that breaks the rule is reported exactly once."""
    assert len(list(rule("README.md", text))) == 1


@pytest.mark.parametrize(("rule", "text"), ALLOWED)
def test_the_rule_allows_its_exceptions(rule: Rule, text: str) -> None:
    """A page that stays just inside the rule is not reported."""
    assert list(rule("README.md", text)) == []


def test_every_page_is_listed_in_the_index() -> None:
    """A page that is added appears in docs/README.md, which says who reads it."""
    index = (CHECKOUT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = {(CHECKOUT / "docs" / target).resolve() for target in LINK.findall(index)}
    documentation = set((CHECKOUT / "docs").rglob("*.md")) - {CHECKOUT / "docs" / "README.md"}
    assert documentation - linked == set()
