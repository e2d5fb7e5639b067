"""What all commands share: exit codes, and where things are printed."""

import io
import json

import pytest
import typer
from rich.console import Console

from app.client.commands.session import terminal_session
from app.client.failures import BadInput, Failure
from app.client.terminal import Terminal


def test_a_failure_ends_with_1_and_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """The reason is on the error stream, where markup in it means nothing."""
    with pytest.raises(typer.Exit) as ended, terminal_session(as_json=False):
        raise BadInput(7, "[bold]odd[/bold]")
    assert ended.value.exit_code == 1
    assert capsys.readouterr() == ("", "error: line 7: [bold]odd[/bold]\n")


def test_ctrl_c_ends_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    """An interrupt is the shell's exit code and no message."""
    with pytest.raises(typer.Exit) as ended, terminal_session(as_json=False):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert capsys.readouterr() == ("", "")


def test_programs_read_json_on_both_streams(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json a notice and a failure are an object a line on the error stream."""
    terminal = Terminal(as_json=True)
    terminal.notice("half of it")
    terminal.failure(Failure("broken"))
    out, err = capsys.readouterr()
    notice, failure = map(json.loads, err.splitlines())
    assert (out, notice, failure["error"]) == ("", {"notice": "half of it"}, "broken")


def test_failures_of_all_kinds_have_a_code_for_programs() -> None:
    """Programs tell failures apart without reading sentences."""
    assert Failure("x").for_programs() == {"error": "x", "code": "failed", "advice": ""}
    assert BadInput(1, "x").for_programs()["code"] == "bad_input"


def test_progress_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal gets a bar with a rate, a pipe and a program get nothing."""
    for is_terminal, as_json, is_drawn in (
        (True, False, True),
        (False, False, False),
        (True, True, False),
    ):
        stream = io.StringIO()
        monkeypatch.setattr(
            "app.client.terminal.Console",
            lambda *, stderr=False, stream=stream, is_terminal=is_terminal, **_: Console(
                file=stream, force_terminal=is_terminal
            ),
        )
        with Terminal(as_json=as_json).progress("counting", 20) as meter:
            meter.advance(10)
            meter.advance(10)
        assert ("counting" in stream.getvalue()) is is_drawn
