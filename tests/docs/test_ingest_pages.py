"""The pages for senders do what they say: profiles, programs and what arrives in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page_shell import PageShell
from tests.docs.sender_pages import page_names, steps_of
from tests.docs.snippets import Snippet, run_program, run_python
from tests.support.captures import Capture, captures, replay
from tests.support.server import serving
from tests.support.time import ManualClock

RUN_ELSEWHERE = {"conf", "console", "js", "properties", "yaml"}
"""Settings of senders, and programs for them: tests with the real senders use those."""


def clock_of(page: str) -> ManualClock | None:
    """A clock that stands where the page's captures were signed."""
    sent = [step for step in steps_of(page, "") if isinstance(step, Capture)]
    return ManualClock(sent[0].sent_ms) if sent and sent[0].sent_at else None


@pytest.mark.parametrize("page", page_names())
def test_a_page_prints_what_it_says(page: str, tmp_path: Path) -> None:
    """Block by block: set up the topic, let the sender send, look at what arrived."""
    shell = PageShell(tmp_path)
    names: dict[str, object] = {}
    with serving(tmp_path / "data", clock=clock_of(page)) as served:
        for step in steps_of(page, served.url):
            if isinstance(step, Capture):
                answer = replay(step, served.url)
                assert answer.status_code == 200, answer.text
            elif step.language not in RUN_ELSEWHERE:
                is_python = step.language == "python"
                printed = run_python(step.code, names) if is_python else shell.run(step.code)
                assert step.is_told(printed), f"{step.code}\n{printed}"
                assert step.expected or not printed, printed


@pytest.mark.long
@pytest.mark.needs("curl", "bash")
@pytest.mark.parametrize("page", page_names())
def test_bash_and_curl_print_what_the_page_says(page: str, tmp_path: Path) -> None:
    """The same blocks in a real shell, which has no part left out."""
    with serving(tmp_path / "data", clock=clock_of(page)) as served:
        assignments = ""
        for step in steps_of(page, served.url):
            if isinstance(step, Capture):
                assert replay(step, served.url).status_code == 200
            elif step.language == "sh":
                code = assignments + step.code
                printed = run_program(["bash", "-eu", "-c", code], tmp_path)
                assert step.is_told(printed), f"{code}\n{printed}"
                assignments += "".join(
                    f"{line}\n" for line in step.code.splitlines() if line.startswith("URL=")
                )
            elif step.language == "python":
                run_python(step.code, {})


def test_every_page_shows_what_arrives() -> None:
    """A page without a block that prints would say nothing that can be wrong."""
    for page in page_names():
        blocks = [step for step in steps_of(page, "") if isinstance(step, Snippet)]
        assert any(block.expected for block in blocks), page


def test_every_capture_belongs_to_a_page() -> None:
    """Every tested sender is described."""
    assert {capture.page for capture in captures().values()} <= {*page_names()}
