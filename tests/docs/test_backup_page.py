"""docs/backup.md from the first line to the restored service, and the example of the format."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from bench.peers.program import free_ports
from engine.archive.documents import decode
from engine.archive.manifest import Manifest
from tests.docs.snippets import run_program, snippets_in

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.needs("bash", "curl")
def test_the_page_saves_a_log_from_the_loss_of_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks in one shell, which keeps the services; each prints what the page says."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TIDELOG_ARCHIVE_INTERVAL_MS", "50")
    monkeypatch.setenv("COLUMNS", "200")
    text = (DOCS / "backup.md").read_text()
    (port,) = free_ports(1)
    text = text.replace(":8080", f":{port}").replace("--port 8080", f"--port {port}")
    monkeypatch.setenv("TIDELOG_SERVER", f"http://127.0.0.1:{port}")
    snippets = [*snippets_in(text)]
    assert {one.language for one in snippets} == {"sh"}
    script = "set -m\n" + "\necho @@@\n".join(one.code for one in snippets)
    printed = run_program(["bash", "-eu", "-c", script], tmp_path).split("@@@\n")
    assert len(printed) == len(snippets), printed
    for snippet, output in zip(snippets, printed, strict=True):
        assert snippet.is_told(output), output


def test_the_example_of_the_format_is_a_manifest() -> None:
    """Its checksum is right, and the restore that the page describes is what `at` returns."""
    (example,) = (
        block.split("```")[0]
        for block in (DOCS / "formats" / "archive.md").read_text().split("```text\n")[1:]
    )
    document = decode(example.encode(), "the example")
    manifest = Manifest.of(document, "the example")
    assert json.loads(example)["number"] == document.number == 2
    assert manifest.archived_offset == 2
    then = manifest.at(1795219401500)
    (piece,) = then.pieces
    assert (piece.size_bytes, piece.end_offset, piece.is_sealed) == (71, 1, False)
