// Append, read and follow with the generated client; prints one line a step.
import { appendRecords, putTopic, readRecords, tailRecords } from "./client/index.js";
import { client } from "./client/client.gen.js";

declare const process: { argv: string[]; exit(code: number): never };

client.setConfig({ baseUrl: process.argv[2] as string });
const path = { topic: "events", partition: 0 };

const made = await putTopic({ path: { topic: "events" }, body: { partitions: 1 } });
console.log("created", made.response?.status);

const appended = await appendRecords({
  path,
  body: { records: [{ key: "ada", value: { n: 1 } }, { value: "two" }] },
});
console.log("appended", appended.data?.base_offset, appended.data?.last_offset);

const page = await readRecords({ path, query: { offset: "0" } });
console.log("read", page.data?.records.map((record) => record.offset).join(" "));

const missing = await readRecords({ path: { topic: "events", partition: 9 } });
console.log("error", missing.error?.code);

const { stream } = await tailRecords({ path, query: { offset: "1" } });
for await (const event of stream) {
  const data = event as { records?: { offset: number }[] };
  if (data.records !== undefined) {
    console.log("followed", data.records[0]?.offset);
    break;
  }
}
process.exit(0);
