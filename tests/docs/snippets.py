"""The code of a page: its blocks in order, each with the output that stands under it."""

import contextlib
import io
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
PAGES = README.parent / "docs" / "clients"
ADDRESS = "http://127.0.0.1:8080"

_BLOCK = re.compile(
    r"(?P<browser><!-- browser only -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Snippet:
    """One block of code and what it should print; None if the page does not say."""

    language: str
    code: str
    expected: str | None
    is_for_browsers: bool

    def is_told(self, printed: str) -> bool:
        """Whether the page tells what was printed; `…` in the page stands for anything."""
        if self.expected is None:
            return True
        pieces = map(re.escape, self.expected.strip().split("…"))
        return re.fullmatch(".*".join(pieces), printed.strip(), re.DOTALL) is not None


def snippets_of(page: str | Path, url: str) -> Iterator[Snippet]:
    """Yield the blocks of a page, with the address of this service."""
    yield from snippets_in((PAGES / page).read_text().replace(ADDRESS, url))


def snippets_in(text: str) -> Iterator[Snippet]:
    """Yield the blocks of a part of a page."""
    blocks = list(_BLOCK.finditer(text))
    for number, block in enumerate(blocks):
        if block["language"] == "text":
            continue
        following = blocks[number + 1] if number + 1 < len(blocks) else None
        is_told = following is not None and following["language"] == "text"
        expected = following["code"] if is_told and following is not None else None
        yield Snippet(block["language"], block["code"], expected, block["browser"] is not None)


def run_python(code: str, names: dict[str, object]) -> str:
    """Run a block where the earlier ones of its page left their names; return what it prints."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "<page>", "exec"), names)
    except Exception:  # noqa: BLE001  # the page's failure, shown as its output
        printed.write(traceback.format_exc())
    return printed.getvalue()


def run_program(command: list[str], directory: Path) -> str:
    """Run a block with another program; return what it prints, complaints included."""
    ended = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=120, check=False
    )
    sys.stdout.write(ended.stderr)
    return ended.stdout + (ended.stderr if ended.returncode else "")
