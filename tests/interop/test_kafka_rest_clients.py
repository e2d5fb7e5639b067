"""Clients of Kafka REST proxies as published, against the service; the network is needed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.server import serving

CONFLUENT_NODE = "kafka-rest@0.0.5"
"""Confluent's own client for Node."""

MERCK_PYTHON = "nlp-kafka-rest-api==0.7.0"
"""A client for Python, of JSON records."""

NODE_PROGRAM = """
const KafkaRest = require("kafka-rest");
const kafka = new KafkaRest({ url: process.argv[2] });
const topic = kafka.topic("clicks");
const ask = (call) => new Promise((resolve) =>
  call((error, answer) => resolve(error ? { status: error.status, ...error.data } : answer)));
(async () => {
  const told = {};
  told.topics = (await ask((done) => kafka.topics.list(done))).map((one) => one.name);
  told.brokers = (await ask((done) => kafka.brokers.list(done))).map((one) => one.id);
  told.name = (await ask((done) => topic.get(done))).raw.name;
  const records = [{ key: "ada", value: "one", partition: 1 }, { value: "two", partition: 0 }];
  told.produced = await ask((done) => topic.produce(records, done));
  told.to_one = await ask((done) => topic.partition(1).produce("three", done));
  told.partitions = (await ask((done) => topic.partitions.list(done))).map((one) => one.raw);
  told.partition = (await ask((done) => topic.partition(1).get(done))).raw;
  told.missing = await ask((done) => kafka.topic("none").get(done));
  told.consumer = await ask((done) => kafka.consumer("lake").join({ format: "binary" }, done));
  console.log(JSON.stringify(told));
})();
"""

PYTHON_PROGRAM = """
import sys
from kafka_rest import Producer
producer = Producer(kafka_rest_api_url=sys.argv[1])
print(producer.produce([{"page": "/"}, {"page": "/docs"}], "clicks", keys=["ada", "bob"]))
try:
    producer.produce([1], "none")
except Exception as error:
    print(type(error).__name__)
"""


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.needs("npm", "node")
def test_confluents_client_for_node_works(tmp_path: Path) -> None:
    """Lists, describes and produces, binary with keys and partitions; errors are its own."""
    run("npm", "install", "--no-audit", "--no-fund", CONFLUENT_NODE, cwd=tmp_path)
    (tmp_path / "program.js").write_text(NODE_PROGRAM, encoding="utf-8")
    with serving(tmp_path / "data") as served:
        httpx.put(f"{served.url}/v1/topics/clicks", json={"partitions": 2})
        told: dict[str, Any] = json.loads(run("node", "program.js", served.url, cwd=tmp_path))
        stored = httpx.get(f"{served.url}/v1/topics/clicks/partitions/1/records?encoding=utf8")
    assert (told["topics"], told["name"]) == (["clicks"], "clicks")
    assert told["brokers"] == [0]
    offsets = told["produced"]["offsets"]
    assert [(one["partition"], one["offset"]) for one in offsets] == [(1, 0), (0, 0)]
    assert told["to_one"]["offsets"][0]["offset"] == 1
    assert [one["partition"] for one in told["partitions"]] == [0, 1]
    assert told["partition"]["replicas"][0]["in_sync"] is True
    assert (told["missing"]["status"], told["missing"]["error_code"]) == (404, 40403)
    assert (told["consumer"]["status"], told["consumer"]["error_code"]) == (501, 501)
    records = [(one["key"], one["value"]) for one in stored.json()["records"]]
    assert records == [("ada", "one"), (None, "three")]


@pytest.mark.long
def test_a_python_client_of_json_records_works(tmp_path: Path) -> None:
    """Produces with keys, which are stored as JSON; a missing topic is its HTTP error."""
    target = str(tmp_path / "site")
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--target", target, MERCK_PYTHON),
        cwd=tmp_path,
    )
    (tmp_path / "site" / "program.py").write_text(PYTHON_PROGRAM, encoding="utf-8")
    with serving(tmp_path / "data") as served:
        httpx.put(f"{served.url}/v1/topics/clicks", json={"partitions": 1})
        told = run(sys.executable, "site/program.py", served.url, cwd=tmp_path)
        url = f"{served.url}/topics/clicks/partitions/0/records?offset=0"
        wanted = {"accept": "application/vnd.kafka.json.v2+json"}
        records = httpx.get(url, headers=wanted).json()
    assert told.splitlines()[0] == "['ada', 'bob']"
    assert told.splitlines()[-1] == "HTTPError"
    assert [(one["key"], one["value"]) for one in records] == [
        ("ada", {"page": "/"}),
        ("bob", {"page": "/docs"}),
    ]
