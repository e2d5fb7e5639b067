"""`tidelog append`, `read` and `tail` against a real service."""

import json
import signal
import subprocess
import sys

import pytest

from app.client.appender import AppendReport
from app.client.commands.append import outcome
from app.client.connection import Connection, Request, topic_path
from demo.children import Server
from tests.cli.conftest import Run, objects
from tests.support.boundaries import TEXTS


def test_what_is_appended_can_be_read(run: Run) -> None:
    """Records come back in order, with key, time and the value exactly as it was typed."""
    run("create", "round", "-c", "retention.ms=-1")
    lines = b'{"key":"a","value":{"n":1.50},"timestamp":1388534400000}\n{"value":"text"}\n'
    assert run("append", "round", stdin=lines).stdout.startswith("2 records appended to round in ")
    first, second = run("read", "round").stdout.splitlines()
    assert first == '0:0  2014-01-01T00:00:00.000Z  a  {"n":1.50}'
    assert second.endswith("  null  text")


def test_append_reports_to_programs(run: Run) -> None:
    """With --json the outcome is one object of counts."""
    run("create", "counted", "-p", "2")
    lines = b"".join(b'{"key":"k%d","value":%d}\n' % (n, n) for n in range(50))
    (report,) = objects(run("append", "counted", "--batch", "7", "--json", stdin=lines).stdout)
    assert report["records"] == 50
    assert report["duplicates"] == 0
    assert isinstance(report["by_partition"], dict)
    assert sum(report["by_partition"].values()) == 50


def test_duplicates_that_a_retry_found_are_told() -> None:
    """A person reads that the records are there once although they were sent twice."""
    told, sentence = outcome("t", AppendReport(records=5, requests=2, duplicates=3), 1.5)
    assert told["duplicates"] == 3
    assert sentence == (
        "5 records appended to t in 1.5 s; 3 of them were already in the log, by an earlier attempt"
    )


def test_the_service_puts_keys_where_the_command_puts_them(run: Run, service: Server) -> None:
    """Client and service agree on the partition of every key."""
    run("create", "agreed", "-p", "7")
    keys = [f"key-{n}" for n in range(60)]
    body = b"\n".join(b'{"key":"%s","value":1}' % key.encode() for key in keys)
    path = topic_path("agreed", operation="records")
    with Connection(service.url) as connection:
        connection.send(
            Request("POST", path, headers={"Content-Type": "application/x-ndjson"}, content=body)
        )
    run("append", "agreed", stdin=body)
    homes: dict[object, set[object]] = {}
    for record in objects(run("read", "agreed", "--json").stdout):
        homes.setdefault(record["key"], set()).add(record["partition"])
    assert {len(partitions) for partitions in homes.values()} == {1}
    assert homes.keys() == set(keys)


def test_documents_become_values_with_their_own_key_and_time(run: Run) -> None:
    """Fields of a document name its key and its time, and the document stays whole."""
    run("create", "documents", "-c", "retention.ms=-1")
    document = b'{"id": "x7", "at": "2014-01-01T00:00:00Z", "n": [1,  2]}'
    run("append", "documents", "--key-field", "id", "--timestamp-field", "at", stdin=document)
    run("append", "documents", "--documents", stdin=b"[17]")
    first, second = run("read", "documents").stdout.splitlines()
    assert first == f"0:0  2014-01-01T00:00:00.000Z  x7  {document.decode()}"
    assert second.endswith("  null  [17]")


def test_raw_lines_become_values_as_they_are(run: Run) -> None:
    """Text, JSON with its spacing, and bytes that are not text: nothing is parsed."""
    run("create", "raw")
    lines = b'GET / 200\r\n\n{"n":  1.50}\n{broken\n\xff\xfe\x00'
    appended = run("append", "raw", "--raw", stdin=lines)
    assert appended.stdout.startswith("5 records appended to raw in ")
    values = [
        (r["value"], r["value_encoding"]) for r in objects(run("read", "raw", "--json").stdout)
    ]
    assert values == [
        ("GET / 200", "utf8"),
        ("", "utf8"),
        ({"n": 1.5}, "json"),
        ("{broken", "utf8"),
        ("//4A", "base64"),
    ]
    assert run("read", "raw").stdout.splitlines()[2].endswith('  {"n":  1.50}')


@pytest.mark.parametrize("option", [["--documents"], ["--key-field", "id"]])
def test_raw_lines_have_no_fields(run: Run, option: list[str]) -> None:
    """A line that is not parsed cannot give a key: the options exclude each other."""
    assert run("append", "any", "--raw", *option).exit_code == 2


def appending(service: Server, topic: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "app.cli", "append", topic, "--raw", "--server", service.url]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_line_is_in_the_log_while_the_next_one_is_awaited(run: Run, service: Server) -> None:
    """A pipe that stays open holds nothing back, and Ctrl-C takes nothing away."""
    run("create", "slow")
    with appending(service, "slow") as append:
        assert append.stdin is not None
        assert append.stderr is not None
        for line in (b"first", b"second"):
            append.stdin.write(line + b"\n")
            append.stdin.flush()
            count = {b"first": "1", b"second": "2"}[line]
            shown = run("tail", "slow", "--offset", "0", "-n", count).stdout
            assert shown.encode().rstrip().endswith(line)
        append.send_signal(signal.SIGINT)
        assert append.wait(30) == 130
        assert b"at least 2 records are in the log" in append.stderr.read()
    assert len(run("read", "slow").stdout.splitlines()) == 2


def test_a_refusal_is_reported_while_input_is_awaited(run: Run, service: Server) -> None:
    """A program whose output is refused notices it by a closed pipe, not at its next line."""
    run("create", "keyed", "-c", "cleanup.policy=compact")
    with appending(service, "keyed") as append:
        assert append.stdin is not None
        assert append.stderr is not None
        append.stdin.write(b"without a key\n")
        append.stdin.flush()
        assert append.wait(30) == 1
        assert b"line 1" in append.stderr.read()


def test_a_single_record_is_not_many(run: Run) -> None:
    """The sentence is grammatical for one, too."""
    run("create", "lonely")
    assert run("append", "lonely", stdin=b'{"value":1}').stdout.startswith("1 record appended")


def test_a_bad_line_ends_the_append_and_names_itself(run: Run) -> None:
    """What was sent before stays; the message says how much, and which line to mend."""
    run("create", "broken")
    lines = b'{"value":1}\n{"value":2}\nnonsense\n{"value":3}\n'
    failed = run("append", "broken", "--batch", "1", stdin=lines)
    assert failed.exit_code == 1
    assert "line 3:" in failed.stderr
    assert "records are in the log" in failed.stderr
    assert "3" not in {line[-1] for line in run("read", "broken").stdout.splitlines()}


def test_a_record_the_service_refuses_is_told(run: Run) -> None:
    """The judgement of the service reaches the user with the line it is about."""
    run("create", "refused")
    lines = b'{"value":1}\n\n{"value":2}\n{"key":"k","valu":3}\n'
    failed = run("append", "refused", "--batch", "2", "--partition", "0", stdin=lines)
    assert failed.exit_code == 1
    assert "422 invalid_record" in failed.stderr
    assert "line 4, valu: Object contains unknown field" in failed.stderr
    assert len(run("read", "refused").stdout.splitlines()) == 2


def test_append_to_a_topic_that_is_not_there(run: Run) -> None:
    """Nothing is created on the way."""
    failed = run("append", "absent", stdin=b'{"value":1}')
    assert failed.exit_code == 1
    assert "topic_not_found" in failed.stderr


@pytest.fixture(scope="module")
def filled(service: Server) -> str:
    """A topic of three partitions with ten records in each, a second apart from 2014 on."""
    with Connection(service.url) as connection:
        connection.send(
            Request(
                "PUT",
                topic_path("filled"),
                headers={"Content-Type": "application/json"},
                content=b'{"partitions":3,"config":{"retention.ms":"-1"}}',
            )
        )
        for partition in range(3):
            body = b"\n".join(
                b'{"value":%d,"timestamp":%d}' % (n, 1388534400000 + n * 1000) for n in range(10)
            )
            headers = {"Content-Type": "application/x-ndjson"}
            path = topic_path("filled", partition, "records")
            connection.send(Request("POST", path, headers=headers, content=body))
    return "filled"


def places(text: str) -> list[tuple[object, object]]:
    return [(record["partition"], record["offset"]) for record in objects(text)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], [(p, n) for p in range(3) for n in range(10)]),
        (["--partition", "1"], [(1, n) for n in range(10)]),
        (["--offset", "7"], [(p, n) for p in range(3) for n in (7, 8, 9)]),
        (["--offset", "latest"], []),
        (["-p", "2", "-o", "ts:1388534407500"], [(2, 8), (2, 9)]),
        (["--max-records", "12"], [(0, n) for n in range(10)] + [(1, 0), (1, 1)]),
        (["-p", "0", "--max-records", "10"], [(0, n) for n in range(10)]),
    ],
)
def test_read_shows_what_was_asked_for(
    run: Run, filled: str, options: list[str], expected: list[tuple[int, int]]
) -> None:
    """Partition, start and count select the records, partition after partition."""
    assert places(run("read", filled, *options, "--json").stdout) == expected


@pytest.mark.parametrize("offset", ["-1", "first", "ts:", "1.5"])
def test_an_offset_that_is_none_is_not_understood(run: Run, offset: str) -> None:
    """Usage errors have the exit code 2."""
    assert run("read", "any", "--offset", offset).exit_code == 2


def test_read_beyond_the_end_tells_where_the_end_is(run: Run, filled: str) -> None:
    """The advice uses the numbers of the answer."""
    failed = run("read", filled, "--offset", "99")
    assert failed.exit_code == 1
    assert "offset_beyond_log_end" in failed.stderr
    assert "is 10" in failed.stderr


def test_nothing_in_a_record_steers_the_terminal(run: Run) -> None:
    """Control characters of keys and values are made visible; odd times stay numbers."""
    run("create", "hostile", "-c", f"message.timestamp.after.max.ms={2**63 - 1}")
    run(
        "append",
        "hostile",
        stdin=b'{"key":"\\u001b[2J","value":"caf\xc3\xa9 \\u0007","timestamp":999999999999999}',
    )
    shown = run("read", "hostile").stdout
    assert shown == "0:0  999999999999999  \\x1b[2J  café \\x07\n"


def test_tail_shows_what_is_there_and_what_comes(run: Run, filled: str) -> None:
    """From an offset on, tail prints all partitions and ends after the records asked for."""
    shown = places(run("tail", filled, "-o", "8", "-n", "6", "--json").stdout)
    assert sorted(shown) == [(p, n) for p in range(3) for n in (8, 9)]


def test_tail_wakes_up_for_a_new_record(run: Run, service: Server) -> None:
    """A record appended while tail waits is printed without another request by the user."""
    run("create", "awake")
    run("append", "awake", stdin=b'{"value":"old"}')
    command = ["tail", "awake", "--offset", "0", "--server", service.url]
    with subprocess.Popen(
        [sys.executable, "-m", "app.cli", *command, "-n", "2"], stdout=subprocess.PIPE
    ) as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline().endswith(b"old\n")
        run("append", "awake", stdin=b'{"value":"new"}')
        assert tail.stdout.readline().endswith(b"new\n")
        assert tail.wait(30) == 0


def test_tail_of_a_topic_that_is_not_there(run: Run) -> None:
    """The failure of any partition ends the command."""
    failed = run("tail", "missing", "--partition", "0")
    assert failed.exit_code == 1
    assert "not_found" in failed.stderr


def test_ctrl_c_ends_tail_quietly(service: Server, run: Run) -> None:
    """The shell's exit code for an interrupt, and no stack trace."""
    run("create", "stopped")
    run("append", "stopped", stdin=b'{"value":1}')
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "tail", "stopped", "-o", "0", "--server", service.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, b"")


def test_texts_pass_through_the_commands_to_the_character(run: Run) -> None:
    """Keys, values and headers, of every plane and with every kind of control."""
    run("create", "texts", "-c", "retention.ms=-1")
    records = [
        {"key": text, "value": {text: text}, "headers": [{"key": text, "value": text}]}
        for text in TEXTS.values()
    ]
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records).encode()
    appended = run("append", "texts", stdin=lines)
    assert appended.exit_code == 0, appended.output
    for text, one in zip(
        TEXTS.values(), objects(run("read", "texts", "--json").stdout), strict=True
    ):
        assert (one["key"], one["value"]) == (text, {text: text})
        assert one["headers"] == [{"key": text, "value": text, "encoding": "utf8"}]
    for line in run("read", "texts").stdout.splitlines():
        assert line.isprintable()


def test_only_records_that_match_are_read(run: Run) -> None:
    """The service filters; pages without a match do not end the command."""
    run("create", "sifted", "-p", "2")
    lines = b"".join(b'{"key":"k%d","value":{"n":%d}}\n' % (n, n) for n in range(3000))
    run("append", "sifted", stdin=lines)
    for command in ("read", "tail"):
        options = ("--offset", "earliest", "--json", "-n", "2", "--filter", "value/n >= 2998")
        found = objects(run(command, "sifted", *options).stdout)
        assert sorted(str(one["key"]) for one in found) == ["k2998", "k2999"]
    refused = run("read", "sifted", "--filter", "n > 3")
    assert refused.exit_code == 1
    assert "at character 0 'n > 3' is not understood" in refused.stderr
