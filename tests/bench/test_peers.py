"""The comparison with peers, as far as it goes without them: what is sent, copied and refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import bench.peers
from bench.load import post
from bench.peers.http import LOGS, HttpLog, array, strings
from bench.peers.kafka import Seat
from bench.peers.program import Program
from bench.peers.spark import requests_of
from bench.peers.values import VALUE_BYTES, some_values, write_values
from tests.support.kafka_batches import decoded, encode, numbered

FOLDER = Path(bench.peers.__file__).parent
MAVEN = "{http://maven.apache.org/POM/4.0.0}"


def test_the_values_are_the_same_in_every_run_and_of_one_size(tmp_path: Path) -> None:
    """Two peers that are given the values are given the same ones, one a line."""
    assert some_values(50) == some_values(50)
    assert {len(value) for value in some_values(1_000)} == {VALUE_BYTES}
    lines = write_values(tmp_path).read_bytes().split(b"\n")
    assert lines[:50] == some_values(50)


def test_a_segment_is_copied_in_whole_batches_that_a_client_could_send() -> None:
    """Every record of a file is sent once, and the preallocated end of the file never."""
    batches = [encode(numbered(400, size_bytes=900), base_offset=400 * n) for n in range(7)]
    requests = list(requests_of(bytearray(b"".join(batches) + bytes(4_096))))
    assert [count for count, _ in requests] == [800, 800, 800, 400]
    for _, body in requests:
        offsets = [row[0] for row in decoded(body)]
        assert offsets == [*range(400)] * (len(offsets) // 400)


def test_every_log_is_sent_the_same_values() -> None:
    """Each has its own envelope: S2's records are strings, Durable Streams takes an array."""
    values = [b'{"a":"\xc3\xbc"}', b"[2]"]
    records = json.loads(strings(values))["records"]
    assert [json.loads(record["body"]) for record in records] == [{"a": "ü"}, [2]]
    assert json.loads(array(values)) == [{"a": "ü"}, [2]]


def test_a_load_of_many_logs_has_a_request_for_each(tmp_path: Path) -> None:
    """With as many requests as connections, each connection has a log of its own."""
    program = Program(["unused"], tmp_path / "log.txt", "http://127.0.0.1:1")
    log = HttpLog("peer 1", program, [f"/{n}" for n in range(LOGS)], {}, array)
    requests = log.appends([b"1"], LOGS)
    assert [request.split()[1] for request in requests] == [b"/%d" % n for n in range(64)]
    assert log.appends([b"1"], 1) == requests[:1]


def test_a_request_says_how_long_its_body_is() -> None:
    """The length is that of the body in bytes, and what else was asked for is in the head."""
    head, body = post("/p", "text/plain", "ü".encode(), {"x-so": "1"}).split(b"\r\n\r\n")
    first, *fields = head.split(b"\r\n")
    assert first == b"POST /p HTTP/1.1"
    assert {*fields} == {
        b"Host: localhost",
        b"Content-Type: text/plain",
        b"Content-Length: 2",
        b"x-so: 1",
    }
    assert body == "ü".encode()


def test_a_measure_that_is_none_is_refused() -> None:
    """The error lists the measures there are, before anything is fetched."""
    command = [sys.executable, "-m", "bench.peers", "speed"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no measure is called speed: rust, s2, node, native, spark" in done.stderr


def test_the_versions_of_the_peers_are_fixed_and_no_registry_is_named() -> None:
    """Each dependency has a version of its own, and where it comes from is the machine's choice."""
    for pom in FOLDER.glob("*.pom.xml"):
        project = ET.parse(pom).getroot()
        versions = [d.findtext(f"{MAVEN}version") for d in project.iter(f"{MAVEN}dependency")]
        assert versions
        assert all(version and version[0].isdecimal() for version in versions)
        assert project.find(f"{MAVEN}repositories") is None


def test_the_nodes_of_a_cluster_agree_about_its_voters() -> None:
    """Each node has ports of its own, and all have the same list of controllers."""
    seats = Seat.of_cluster(3)
    lines = [dict(line.split("=", 1) for line in seat.properties().splitlines()) for seat in seats]
    assert [each["node.id"] for each in lines] == ["1", "2", "3"]
    assert len({each["listeners"] for each in lines}) == 3
    assert len({each["controller.quorum.voters"] for each in lines}) == 1
    assert len({seat.cluster_id for seat in seats}) == 1
