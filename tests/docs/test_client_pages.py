"""The pages for clients do what they say: their code runs, and prints what stands under it."""

from pathlib import Path

import httpx
import pytest

from tests.docs.snippets import PAGES, README, Snippet, run_program, run_python, snippets_of
from tests.support.server import serving

PYTHON_PAGES = ["python.md", "duckdb.md", "polars.md", "pandas.md"]


@pytest.mark.parametrize("page", PYTHON_PAGES)
def test_the_python_of_a_page_prints_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Block by block, in one program and in the page's order."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with serving(tmp_path / "data") as served:
        snippets = list(snippets_of(page, served.url))
        assert any(snippet.expected for snippet in snippets)
        for snippet in snippets:
            assert snippet.language == "python"
            printed = run_python(snippet.code, names)
            assert snippet.is_told(printed), printed
            assert snippet.expected or not printed, "the page keeps quiet about this"
        client = names["client"]
        assert isinstance(client, httpx.Client)
        client.close()


@pytest.mark.long
@pytest.mark.needs("curl", "bash")
@pytest.mark.parametrize("page", ["curl.md", README], ids=["curl.md", "README.md"])
def test_the_curl_commands_print_what_their_page_says(page: str | Path, tmp_path: Path) -> None:
    """A shell that stops at the first failure runs each `sh` block of the page."""
    with serving(tmp_path / "data") as served:
        snippets = [one for one in snippets_of(page, served.url) if one.language == "sh"]
        assert snippets
        for snippet in snippets:
            printed = run_program(["bash", "-eu", "-c", snippet.code], tmp_path)
            assert snippet.is_told(printed), f"{snippet.code}\n{printed}"


@pytest.mark.long
@pytest.mark.needs("node")
def test_the_javascript_prints_what_its_page_says(tmp_path: Path) -> None:
    """All blocks that need no browser, as one module."""
    with serving(tmp_path / "data") as served:
        snippets = [
            one for one in snippets_of("javascript.md", served.url) if not one.is_for_browsers
        ]
        program = "\n".join(snippet.code for snippet in snippets)
        printed = run_program(["node", "--input-type=module", "-e", program], tmp_path)
        expected = "".join(snippet.expected or "" for snippet in snippets)
        assert printed == expected


def test_every_page_for_clients_is_executed() -> None:
    """A new page must be listed in this test; otherwise its code would not be run."""
    # generated.md: tests/interop/test_generated_clients.py and its neighbours
    executed = {*PYTHON_PAGES, "curl.md", "javascript.md", "generated.md"}
    assert {page.name for page in PAGES.glob("*.md")} == executed


def test_an_output_that_differs_is_noticed() -> None:
    """The comparison is of everything but what an ellipsis stands for."""
    snippet = Snippet("python", "", '{"offset":0,…"acks":"all"}\n', is_for_browsers=False)
    assert snippet.is_told('{"offset":0,"count":1,"acks":"all"}')
    assert not snippet.is_told('{"offset":1,"count":1,"acks":"all"}')
    assert not snippet.is_told('{"offset":0,"count":1,"acks":"all"} more')
