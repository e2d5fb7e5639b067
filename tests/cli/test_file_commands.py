"""`tidelog dump`, and the refusals of `tidelog ingest`."""

import errno
import io
import shutil
from pathlib import Path

import pytest

from app.client.commands.dump import dump
from app.client.commands.session import EXIT_REFUSED
from tests.cli.conftest import Run, objects
from tests.support.golden import golden_archive

LOG = "00000000000000000000.log"


def test_dump_prints_what_kafkas_tool_printed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines for a broker's files are those of its own kafka-dump-log."""
    monkeypatch.chdir(golden_archive("clean").parent)
    folder = Path("clean") / "codec-zstd-0"
    files = sorted(path for path in folder.iterdir() if path.suffix in {".log", ".index"})
    shown = run("dump", *map(str, files))
    assert shown.exit_code == 0
    reference = (folder / "dump.txt").read_text()
    assert shown.stdout
    for file in files:
        assert f"Dumping {file}\n" in shown.stdout
    assert set(shown.stdout.splitlines()) <= set(reference.splitlines())


def test_dump_of_a_compacted_log_tells_what_is_not_there(run: Run) -> None:
    """Missing offsets are printed with the dump; they are not damage."""
    shown = run("dump", str(golden_archive("compacted") / "compact-none-0" / LOG))
    assert shown.exit_code == 0
    assert "5250 is followed by 5403" in shown.stderr
    assert "followed by" not in shown.stdout


def test_dump_for_programs_is_an_object_a_line(run: Run) -> None:
    """With --json every batch and record is an object with Kafka's names."""
    kinds = [
        entry["kind"]
        for entry in objects(
            run("dump", "--json", str(golden_archive("clean") / "codec-none-0" / LOG)).stdout
        )
    ]
    assert kinds[:3] == ["file", "log_start", "batch"]
    assert "record" in kinds


def test_dump_tells_damage_in_its_place(run: Run, tmp_path: Path) -> None:
    """A batch with a wrong checksum is shown as not valid, and the exit code is 1."""
    copy = tmp_path / LOG
    shutil.copy(golden_archive("clean") / "codec-none-0" / LOG, copy)
    data = bytearray(copy.read_bytes())
    data[80] ^= 0xFF
    copy.write_bytes(data)
    damaged = run("dump", str(copy))
    assert damaged.exit_code == 1
    assert "1 problem(s) found in 1 file(s)" in damaged.stderr
    assert damaged.stdout.count("isvalid: false") == 1


def test_dump_keeps_what_it_cannot_read_apart(run: Run, tmp_path: Path) -> None:
    """A file of another kind is a problem on the error stream, beside the dump of the others."""
    other = tmp_path / "notes.txt"
    other.write_text("not a log")
    mixed = run("dump", str(other), str(golden_archive("clean") / "codec-none-0" / LOG))
    assert mixed.exit_code == 1
    assert "notes.txt" in mixed.stderr
    assert "notes.txt" not in mixed.stdout
    assert "Log starting offset: 0" in mixed.stdout


class Unread(io.StringIO):
    """Standard output into a pipe whose other end is closed."""

    def write(self, _: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_dump_into_a_pipe_that_is_no_longer_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """`dump … | head` is not taken for a log that cannot be read."""
    monkeypatch.setattr("sys.stdout", Unread())
    with pytest.raises(BrokenPipeError):
        dump(files=[golden_archive("clean") / "codec-none-0" / LOG])


def test_dump_of_a_file_that_is_not_there(run: Run, tmp_path: Path) -> None:
    """A file that cannot be read is one sentence with its name and the reason."""
    missing = run("dump", str(tmp_path / LOG))
    assert missing.exit_code == 1
    assert f"{tmp_path / LOG} cannot be read: No such file or directory" in missing.stderr
    index = (tmp_path / LOG).with_suffix(".index")
    index.write_bytes(b"")
    assert f"{tmp_path / LOG} cannot be read" in run("dump", str(index)).stderr


def test_ingest_refuses_a_sink_it_does_not_know(run: Run, tmp_path: Path) -> None:
    """The refusal is printed before Spark is started."""
    refused = run("ingest", "--topic", "t", "--to", "tape:1", "--checkpoint", str(tmp_path / "c"))
    assert refused.exit_code == 3
    assert "parquet:PATH, json:PATH, delta:PATH, delta:URL or iceberg:" in refused.stderr


@pytest.mark.parametrize("topics", [[], ["--topic", "t", "--topic-pattern", "t.*"]])
def test_ingest_takes_one_topic_or_a_pattern(run: Run, topics: list[str], tmp_path: Path) -> None:
    """Neither or both are a mistake of the command line."""
    refused = run("ingest", *topics, "--to", "delta:lake", "--checkpoint", str(tmp_path / "c"))
    assert refused.exit_code == 2
    assert "either --topic or --topic-pattern" in refused.stderr


def test_ingest_of_a_topic_that_is_not_there(run: Run, tmp_path: Path) -> None:
    """The service's refusal is a sentence, too."""
    sink = f"parquet:{tmp_path / 'lake'}"
    refused = run("ingest", "--topic", "none", "--to", sink, "--checkpoint", str(tmp_path / "c"))
    assert refused.exit_code == EXIT_REFUSED
    assert "none" in refused.stderr
