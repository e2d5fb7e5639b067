// Read with the types of openapi-typescript, which make a union of all media types of an answer.
import createClient from "openapi-fetch";
import type { paths } from "./document.js";

declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: process.argv[2] as string });
const place = { topic: "events", partition: 0 };
await client.PUT("/v1/topics/{topic}", {
  params: { path: { topic: "events" } },
  body: { partitions: 1 },
});
await client.POST("/v1/topics/{topic}/partitions/{partition}/records", {
  params: { path: place },
  body: { records: [{ value: "one" }, { value: "two" }] },
});
const page = await client.GET("/v1/topics/{topic}/partitions/{partition}/records", {
  params: { path: place, query: { offset: "0" } },
});
console.log("read", page.data?.records.map((record) => record.offset).join(" "));
const topic = await client.GET("/v1/topics/{topic}/records", {
  params: { path: { topic: "events" }, query: {} },
});
console.log("topic", topic.data?.partitions.map((part) => part.records.length).join(" "));
const fetched = await client.POST("/v1/fetch", {
  body: { partitions: [{ topic: "events", partition: 0, offset: 1 }] },
});
const entry = fetched.data?.partitions[0];
console.log("fetched", entry?.outcome);
