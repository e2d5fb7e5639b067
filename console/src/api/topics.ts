/** One topic as the list shows it: what belongs to it can be asked for without an answer 404 in the browser's log. */
import { get, type Schemas } from "./client";

/** Internal topics are not listed: undefined. */
export async function summaryOf(topic: string, signal: AbortSignal): Promise<Schemas["TopicSummary"] | undefined> {
  const { topics } = await get("/v1/topics", { query: { prefix: topic, page_size: 1 }, signal });
  return topics.find((one) => one.topic === topic);
}
