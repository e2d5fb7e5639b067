"""The pages for clients do what they say: their code runs, and prints what stands under it."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.docs.snippets import PAGES, README, Snippet, run_program, run_python, snippets_of
from tests.support.campaign import CHECKOUT
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


@pytest.fixture(scope="module")
def consuming(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Snippet]]]:
    """A folder, and the programs of consuming.md, whose topic is there."""
    folder = tmp_path_factory.mktemp("consuming")
    with serving(folder / "data") as served:
        first, *others = snippets_of("consuming.md", served.url)
        assert first.is_told(run_program(["bash", "-eu", "-c", first.code], folder))
        yield folder, others


def consumed(language: str, snippets: list[Snippet]) -> list[Snippet]:
    found = [one for one in snippets if one.language == language]
    assert all(one.expected for one in found)
    return found


@pytest.mark.needs("curl", "bash", "jq")
def test_a_shell_and_python_share_a_topic(
    consuming: tuple[Path, list[Snippet]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tidelog work` and the loops of consuming.md read everything."""
    folder, snippets = consuming
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for shell in consumed("sh", snippets):
        server = re.search(r"http://[0-9.:]+", snippets[-1].code)
        assert server is not None
        monkeypatch.setenv("TIDELOG_SERVER", server[0])
        printed = run_program(["bash", "-eu", "-c", shell.code], folder)
        assert shell.is_told(printed), printed
    (loop,) = consumed("python", snippets)
    names: dict[str, object] = {}
    printed = run_python(loop.code, names)
    assert loop.is_told(printed), printed
    client = names["client"]
    assert isinstance(client, httpx.Client)
    client.close()


@pytest.mark.long
@pytest.mark.needs("node")
def test_a_worker_in_typescript_reads_everything(consuming: tuple[Path, list[Snippet]]) -> None:
    """Its types are checked, and it runs in Node."""
    folder, snippets = consuming
    (loop,) = consumed("ts", snippets)
    (folder / "worker.ts").write_text(loop.code + "export {};\n")
    tools = CHECKOUT / "console" / "node_modules" / ".bin"
    options = ["--strict", "--target", "es2022", "--module", "es2022", "--lib", "es2022,dom"]
    complaints = run_program([str(tools / "tsc"), *options, "worker.ts"], folder)
    assert not complaints
    (folder / "worker.js").rename(folder / "worker.mjs")
    assert loop.is_told(run_program(["node", "worker.mjs"], folder))


@pytest.mark.long
@pytest.mark.needs("go")
def test_a_worker_in_go_reads_everything(consuming: tuple[Path, list[Snippet]]) -> None:
    """With its standard library alone."""
    folder, snippets = consuming
    (loop,) = consumed("go", snippets)
    (folder / "worker.go").write_text(loop.code)
    assert loop.is_told(run_program(["go", "run", "worker.go"], folder))


def test_every_page_for_clients_is_executed() -> None:
    """A new page must be listed in this test; otherwise its code would not be run."""
    # generated.md: tests/interop/test_generated_clients.py and its neighbours
    executed = {*PYTHON_PAGES, "curl.md", "javascript.md", "generated.md", "consuming.md"}
    assert {page.name for page in PAGES.glob("*.md")} == executed


def test_an_output_that_differs_is_noticed() -> None:
    """The comparison is of everything but what an ellipsis stands for."""
    snippet = Snippet("python", "", '{"offset":0,…"acks":"all"}\n', is_for_browsers=False)
    assert snippet.is_told('{"offset":0,"count":1,"acks":"all"}')
    assert not snippet.is_told('{"offset":1,"count":1,"acks":"all"}')
    assert not snippet.is_told('{"offset":0,"count":1,"acks":"all"} more')
