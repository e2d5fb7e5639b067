"""`tidelog kafka-bootstrap` on a directory that a service filled and a broker's tool formatted."""

import shutil
from pathlib import Path

import pytest

from engine.fs import names
from tests.cli.conftest import Run, objects
from tests.support.golden import golden_archive

CHECKPOINT = "bootstrap.checkpoint"


@pytest.fixture
def formatted(tmp_path: Path) -> Path:
    """A broker's own directory, as node 4 will have it."""
    target = tmp_path / "data"
    shutil.copytree(golden_archive("clean"), target)
    properties = "node.id=4\ndirectory.id=kwVphDodsU-b2TJZy0ElCw\n"
    (target / names.META_PROPERTIES).write_text(properties)
    shutil.rmtree(target / "txn-open-0")  # an open transaction
    return target


def test_the_topics_are_added_and_counted(run: Run, formatted: Path) -> None:
    """For people a sentence, for programs an object; a second time is refused."""
    checkpoint = formatted / CHECKPOINT
    before = checkpoint.read_bytes()
    arguments = ("--checkpoint", str(checkpoint), "--replicas", "4,5,6")
    shown = run("kafka-bootstrap", "--json", str(formatted), *arguments)
    assert shown.exit_code == 0, shown.output
    (told,) = objects(shown.stdout)
    assert told["topics"] == told["partitions"] == len([*formatted.glob("*-0")])
    added = checkpoint.read_bytes()
    assert len(added) > len(before)

    again = run("kafka-bootstrap", str(formatted), *arguments)
    assert again.exit_code == 1
    assert "has topics already" in again.stderr
    assert checkpoint.read_bytes() == added

    checkpoint.write_bytes(before)
    told_people = run("kafka-bootstrap", str(formatted), *arguments).stdout
    assert f"partitions added to {checkpoint}" in told_people


def test_replicas_that_are_no_numbers_are_refused(run: Run, formatted: Path) -> None:
    """It is a mistake of the command line."""
    arguments = ("--checkpoint", str(formatted / CHECKPOINT), "--replicas", "a,b")
    shown = run("kafka-bootstrap", str(formatted), *arguments)
    assert shown.exit_code == 3
    assert "--replicas takes node ids, 1,2,3; not 'a,b'" in shown.stderr
