"""The part of a shell that the pages for senders use, in this process: curl, echo, printf.

`make test` needs no foreign program; `make test-long` runs the same blocks with bash and curl.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import httpx


@cache
def _client() -> httpx.Client:
    """One for all pages: a client takes a tenth of a second to make."""
    return httpx.Client()


_ASSIGNMENT = re.compile(r"^([A-Z]+)=(\S+)$", re.MULTILINE)


class PageShell:
    """Runs the `sh` blocks of one page, in order; files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._variables: dict[str, str] = {}

    def run(self, code: str) -> str:
        """Run a block; return what it prints. An HTTP error is printed as the service answered."""
        self._variables.update(_ASSIGNMENT.findall(code))
        code = _ASSIGNMENT.sub("", code).replace("\\\n", " ")
        for name, value in self._variables.items():
            code = code.replace(f"${name}", value)
        return "".join(self._command(words) for words in _commands(code))

    def _command(self, words: list[str]) -> str:
        target = None
        if ">" in words:
            words, (target,) = words[: words.index(">")], words[words.index(">") + 1 :]
        program, *arguments = words
        printed = _PROGRAMS[program](arguments, self._folder)
        if target is None:
            return printed
        (self._folder / target).write_text(printed)
        return ""


def _commands(code: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(code, posix=True, punctuation_chars=";>\n")
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not word.strip(";\n"):
            if words:
                yield words
            words = []
        else:
            words.append(word)


def _echo(arguments: list[str], _folder: Path) -> str:
    return " ".join(arguments) + "\n"


def _printf(arguments: list[str], _folder: Path) -> str:
    (text,) = arguments
    return text.replace("\\n", "\n")


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="curl", exit_on_error=False, allow_abbrev=False)
    parser.add_argument("url")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="data", action="append", default=[])
    parser.add_argument("--data-binary", dest="binary", action="append", default=[])
    parser.add_argument("--json", dest="json", action="append", default=[])
    parser.add_argument("-o", dest="output")
    return parser


def _curl(arguments: list[str], folder: Path) -> str:
    given = _options().parse_args(arguments)
    headers = {"content-type": "application/x-www-form-urlencoded"}
    if given.json:
        headers = {"content-type": "application/json", "accept": "application/json"}
    headers |= {
        name.lower(): value for name, value in (header.split(": ", 1) for header in given.headers)
    }
    parts = [_content(data, folder, is_text=True) for data in given.data]
    parts += [_content(data, folder) for data in [*given.binary, *given.json]]
    if not parts:
        del headers["content-type"]
    answer = _client().request(
        given.method or ("POST" if parts else "GET"),
        given.url,
        headers=headers,
        content=b"&".join(parts) if parts else None,
    )
    assert given.output is None or answer.is_success, answer.text
    return "" if given.output else answer.text


def _content(data: str, folder: Path, *, is_text: bool = False) -> bytes:
    if not data.startswith("@"):
        return data.encode()
    content = (folder / data[1:]).read_bytes()
    return content.replace(b"\r", b"").replace(b"\n", b"") if is_text else content


_PROGRAMS = {"curl": _curl, "echo": _echo, "printf": _printf}
