// What every generated client is asked to do; prints one line a step. Its argument is the service.
import * as tidelog from "./client/index.js";

declare const process: { argv: string[] };

const configuration = new tidelog.Configuration({ basePath: process.argv[2] as string });
const consume = new tidelog.ConsumeApi(configuration);
const groups = new tidelog.GroupsApi(configuration);
const maintenance = new tidelog.MaintenanceApi(configuration);
const offsets = new tidelog.OffsetsApi(configuration);
const produce = new tidelog.ProduceApi(configuration);
const producers = new tidelog.ProducersApi(configuration);
const segments = new tidelog.SegmentsApi(configuration);
const service = new tidelog.ServiceApi(configuration);
const topics = new tidelog.TopicsApi(configuration);

const topic = "events";
const log = { topic, partition: 0 };
const group = "readers";

async function refused(asked: Promise<unknown>): Promise<[number, tidelog.Problem]> {
  try {
    await asked;
  } catch (error) {
    if (error instanceof tidelog.ResponseError) {
      return [error.response.status, tidelog.ProblemFromJSON(await error.response.json())];
    }
    throw error;
  }
  throw new Error("it was not refused");
}

const made = await topics.putTopic({
  topic,
  ifNoneMatch: "*",
  putTopic: { partitions: 1, config: { "retention.ms": "-1" } },
});
console.log("created", made.topic, made.config["retention.ms"]?.value);

const receipt = await produce.appendRecords({
  ...log,
  recordsIn: { records: [{ key: "ada", value: { n: 1 } }, { value: "two" }] },
});
console.log("appended", receipt.baseOffset, receipt.lastOffset, receipt.duplicate);

const page = await consume.readRecords({ ...log, offset: "0" });
const first = page.records[0]!;
console.log("read", first.offset, first.key, first.valueEncoding, page.nextOffset);

console.log("polling");
const polled = await consume.readRecords({ ...log, offset: "2", maxWaitMs: 60_000 });
console.log("polled", polled.records[0]!.offset, polled.nextOffset);

const [missing, why] = await refused(consume.readRecords({ topic, partition: 9 }));
console.log("refused", missing, why.code, why.partitions, why.retryable);

const [failed, expected] = await refused(
  produce.appendRecords({ ...log, expectedOffset: "7", recordsIn: { records: [{ value: 1 }] } }),
);
console.log("refused", failed, expected.code, expected.expected, expected.logEndOffset);

const fetched = await consume.fetchMany({
  fetchRequest: {
    partitions: [
      { topic, partition: 0, offset: "0", endOffset: 1 },
      { topic, partition: 9, offset: 0 },
    ],
  },
});
const [read, problem] = fetched.partitions;
if (read?.outcome === "read" && problem?.outcome === "failed") {
  console.log("fetched", read.records.length, problem.problem.status, problem.problem.code);
}

// What a later release may answer.
const later = JSON.stringify(tidelog.FetchPageToJSON(fetched))
  .replaceAll('"outcome"', '"later":{"n":1},"outcome"')
  .replaceAll('"status"', '"later":[1],"status"');
const [stillRead, stillFailed] = tidelog.FetchPageFromJSON(JSON.parse(later)).partitions;
if (stillRead?.outcome === "read" && stillFailed?.outcome === "failed") {
  console.log("tolerated", stillRead.records.length, stillFailed.problem.status);
}

const answers = [
  await topics.listTopics(),
  await topics.getTopic({ topic }),
  await topics.listPartitions({ topic }),
  await topics.getPartition(log),
  await offsets.getOffsets(log),
  await offsets.getOffsetAt({ ...log, timestamp: "0" }),
  await offsets.getOffsetAt({ ...log, timestamp: "latest" }),
  await offsets.getTopicOffsets({ topic }),
  await offsets.getTopicOffsets({ topic, timestamp: "9" }),
  await offsets.planSplits({ topic, splitRequest: { start: { "0": 1 }, end: "latest" } }),
  await producers.allocateProducer(),
  await producers.listProducers(log),
  await groups.putGroupOffset({ ...log, group, putGroupOffset: { offset: 2 } }),
  await groups.getGroupOffset({ ...log, group }),
  await groups.getGroupLag({ group }),
  await groups.listGroups(),
  await groups.listGroupOffsets({ group }),
  await maintenance.rollSegment(log),
  await maintenance.flushLog(log),
  await maintenance.runRetention({ ...log, dryRun: true }),
  await maintenance.getMove(log),
  await maintenance.listDirectories(),
  await maintenance.getScrubReport(),
  await maintenance.deleteRecords({ ...log, deleteRecords: { beforeOffset: 1 } }),
  await segments.listSegments(log),
  await service.getLimits(),
  await service.getReadiness(),
  await produce.appendTopicRecords({ topic, recordsIn: { records: [{ value: 4 }] } }),
];
console.log("decoded", answers.length);
