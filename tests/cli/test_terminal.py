"""Nothing that came from outside steers a terminal, in whatever way a command shows it."""

import json
from collections.abc import Callable

import pytest

from app.client.failures import Failure
from app.client.terminal import Terminal, printable

HOSTILE = "a\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\u200f\u2028\r\x7f[bold]\U0001f600"
SEEN = r"a\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\u200f\u2028\r\x7f[bold]\U0001f600"

WAYS: dict[str, Callable[[Terminal], None]] = {
    "result": lambda terminal: terminal.result({"x": HOSTILE}, HOSTILE),
    "table": lambda terminal: terminal.table(("name",), [(HOSTILE,)]),
    "notice": lambda terminal: terminal.notice(HOSTILE),
    "plain": lambda terminal: terminal.plain(HOSTILE),
    "failure": lambda terminal: terminal.failure(Failure(HOSTILE)),
}


@pytest.mark.parametrize("way", WAYS)
def test_people_see_what_is_there(way: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Escapes, both sets of controls, marks of direction and line ends are spelt out."""
    WAYS[way](Terminal())
    shown = "".join(capfd.readouterr()).replace("\n", "")
    assert shown.isprintable()
    assert SEEN.replace(r"\U0001f600", "\U0001f600") in shown


@pytest.mark.parametrize("way", ["result", "notice", "failure"])
def test_programs_get_the_same_value(way: str, capfd: pytest.CaptureFixture[str]) -> None:
    """In JSON that is printable too."""
    WAYS[way](Terminal(as_json=True))
    shown = "".join(capfd.readouterr()).removesuffix("\n")
    assert shown.isprintable()
    assert HOSTILE in json.loads(shown).values()


def test_lines_of_our_own_stay_lines(capfd: pytest.CaptureFixture[str]) -> None:
    """A sentence may have several; what came from outside cannot add one."""
    Terminal().result({}, "one\ntwo")
    assert capfd.readouterr().out == "one\ntwo\n"


def test_lone_surrogates_and_wide_spaces_can_be_shown() -> None:
    """Half of a character is spelt out, the space of Chinese and Japanese text is not."""
    assert printable("\ud800 \u3000") == "\\ud800 \u3000"
