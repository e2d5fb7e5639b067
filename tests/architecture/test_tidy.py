"""The house style as a test: every rule holds for every file, and every rule can fail."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture import rules
from tests.architecture.rules import RULES, Rule, Source

CHECKOUT = Path(__file__).parents[2]
ROOMS = ("app", "bench", "demo", "engine", "pyspark_tidelog", "schemas", "tests")


def sources() -> Iterator[Source]:
    """Read every Python file of the project, one after the other."""
    for room in ROOMS:
        for path in sorted((CHECKOUT / room).rglob("*.py")):
            yield Source(path.relative_to(CHECKOUT).as_posix(), path.read_text(encoding="utf-8"))


@cache
def offences() -> dict[Rule, list[str]]:
    """Hold every file against every rule, once: parsing them all takes seconds."""
    found: dict[Rule, list[str]] = {rule: [] for rule in RULES}
    for source in sources():
        for rule, offending in found.items():
            offending.extend(rule(source))
    return found


def named(rule: Rule) -> str:
    return rule.__name__


def lines(count: int) -> str:
    return "pass\n" * count


# What must be refused: the rule, where the file would stand, and its text.
OFFENCES: list[tuple[Rule, str, str]] = [
    (rules.file_is_short, "engine/long.py", lines(701)),
    (rules.parameters_are_few, "engine/wide.py", "def wide(a, b, c, d, e, f): ...\n"),
    (
        rules.parameters_are_few,
        "engine/wide.py",
        "class W:\n    def wide(self, a, b, c, d, e, f): ...\n",
    ),
    (rules.system_is_called_in_one_place, "engine/log/log.py", "import os\n"),
    (rules.system_is_called_in_one_place, "engine/log/log.py", "from os.path import join\n"),
    (rules.system_is_called_in_one_place, "engine/index/mapped.py", "from mmap import mmap\n"),
    (
        rules.system_is_called_in_one_place,
        "engine/fs/directories.py",
        "def f() -> None:\n    import fcntl\n",
    ),
    (rules.system_is_called_in_one_place, "engine/manager.py", "open('file')\n"),
    (rules.system_is_called_in_one_place, "engine/manager.py", "path.unlink()\n"),
    (
        rules.tests_are_not_imported,
        "app/api/application.py",
        "from tests.support.time import Clock\n",
    ),
    (rules.tests_do_not_sleep, "tests/unit/test_x.py", "import time\ntime.sleep(1)\n"),
    (rules.tests_do_not_sleep, "tests/support/x.py", "from asyncio import sleep\n"),
    (
        rules.tests_do_not_sleep,
        "tests/support/x.py",
        "async def f():\n    await asyncio.sleep(0.1)\n",
    ),
    (
        rules.browsers_are_asked_with_patience,
        "tests/console/test_x.py",
        "assert 'a' in row.inner_text()\n",
    ),
    (
        rules.tests_are_not_excused,
        "tests/test_x.py",
        "@pytest.mark.skipif(True)\ndef test_x(): ...\n",
    ),
    (rules.tests_are_not_excused, "tests/test_x.py", "@pytest.mark.xfail\ndef test_x(): ...\n"),
    (rules.tests_are_not_excused, "tests/test_x.py", "pytest.importorskip('x')\n"),
    (rules.tests_do_not_mock, "tests/test_x.py", "from unittest.mock import Mock\n"),
    (rules.tests_have_a_sentence, "tests/test_x.py", "def test_x():\n    assert 1\n"),
    (rules.tests_have_a_sentence, "tests/test_x.py", "def test_x():\n    'Works.'\n"),
    (rules.tests_have_a_sentence, "tests/test_x.py", "class TestX:\n    def test_x(self): ...\n"),
    (rules.braces_are_filled, "app/x.py", "raise E(f'{a} is one ' 'which ends at {b}')\n"),
    (rules.nothing_is_unfinished, "engine/x.py", "# TO" + "DO: later\n"),
    (rules.nothing_is_unfinished, "engine/x.py", "raise NotImplemented" + "Error\n"),
    (rules.exemptions_have_a_reason, "app/x.py", "import x  # no" + "qa: F401\n"),
    (rules.exemptions_have_a_reason, "app/x.py", "x = y  # type: " + "ignore[assignment]\n"),
    (rules.names_say_something, "app/utils.py", ""),
    (rules.names_say_something, "app/x.py", "class TopicManager: ...\n"),
    (rules.strings_stand_under_their_field, "app/x.py", "a = 1\n\n'Of nothing.'\n"),
    (rules.strings_stand_under_their_field, "app/x.py", "class A:\n    f()\n    'Of it.'\n"),
]

# What looks alike and is allowed.
ALLOWED: list[tuple[Rule, str, str]] = [
    (rules.braces_are_filled, "app/x.py", "raise E(f'{a}: PUT /{{topic}}' f' ends at {b}')\n"),
    (rules.file_is_short, "engine/x.py", lines(700)),
    (rules.parameters_are_few, "engine/x.py", "def f(a, b, c, d, e, *, f, g): ...\n"),
    (rules.parameters_are_few, "engine/x.py", "class W:\n    def f(self, a, b, c, d, e): ...\n"),
    (rules.parameters_are_few, "app/x.py", "@router.get('/')\ndef f(a, b, c, d, e, f): ...\n"),
    (rules.system_is_called_in_one_place, "engine/fs/posix.py", "import os\nimport mmap\n"),
    (
        rules.system_is_called_in_one_place,
        "engine/x.py",
        "from pathlib import Path\nfs.open(path)\n",
    ),
    (rules.system_is_called_in_one_place, "app/settings.py", "import os\n"),
    (rules.tests_are_not_imported, "tests/x.py", "from tests.support.time import Clock\n"),
    (rules.tests_do_not_sleep, "tests/x.py", "import time\ntime.monotonic()\nclock.sleep(1)\n"),
    (
        rules.tests_are_not_excused,
        "tests/x.py",
        "@pytest.mark.needs('docker')\ndef test_x(): ...\n",
    ),
    (rules.tests_have_a_sentence, "tests/test_x.py", "def test_x():\n    'One and one are two.'\n"),
    (rules.exemptions_have_a_reason, "app/x.py", "import x  # no" + "qa: F401 - for its effect\n"),
    (rules.exemptions_have_a_reason, "app/x.py", "# for its effect\nimport x  # no" + "qa: F401\n"),
    (rules.names_say_something, "engine/manager.py", "class LogManager: ...\n"),
    (rules.strings_stand_under_their_field, "app/x.py", "'A module.'\na = 1\n'The field.'\n"),
]


@pytest.mark.parametrize("rule", RULES, ids=named)
def test_the_project_keeps_the_rule(rule: Rule) -> None:
    """No file of the project offends the rule."""
    offending = offences()[rule]
    assert not offending, "\n".join([f"{rule.__doc__}", *offending])


@pytest.mark.parametrize(("rule", "path", "text"), OFFENCES)
def test_the_rule_sees_what_offends_it(rule: Rule, path: str, text: str) -> None:
    """A file that breaks the rule is reported exactly once."""
    assert len(list(rule(Source(path, text)))) == 1


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED)
def test_the_rule_lets_its_neighbours_pass(rule: Rule, path: str, text: str) -> None:
    """A file that stays just inside the rule is not reported."""
    assert list(rule(Source(path, text))) == []


def test_every_rule_is_shown_to_fail() -> None:
    """There is no rule without an example that it refuses."""
    assert {rule for rule, _, _ in OFFENCES} == set(RULES)


def test_the_project_is_really_read() -> None:
    """The rules run over every room that exists, this file among them."""
    paths = {source.path for source in sources()}
    assert "tests/architecture/test_tidy.py" in paths
    assert any(path.startswith("engine/") for path in paths)
