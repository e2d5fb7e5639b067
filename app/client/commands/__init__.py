"""One module per command; `register` adds them to the program."""

from __future__ import annotations

import typer

from app.client.access import with_access
from app.client.commands.append import append
from app.client.commands.dump import dump
from app.client.commands.ingest import ingest
from app.client.commands.lake import lake
from app.client.commands.move import directories, move
from app.client.commands.read import read, tail
from app.client.commands.topics import create, topics
from app.client.commands.verify import repair, verify


def register(program: typer.Typer) -> None:
    """Add the commands in the order `--help` lists them."""
    for talking in (topics, create, append, read, tail, directories, move):
        program.command()(with_access(talking))
    for command in (dump, verify, repair, ingest):
        program.command()(command)
    program.add_typer(lake)
