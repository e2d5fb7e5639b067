/** All topics that the caller may see, to the last page. */
import { get, type Schemas } from "../../api/client";
import { everyPage } from "../../ui/pages";

export function everyTopic(signal: AbortSignal): Promise<Schemas["TopicSummary"][]> {
  return everyPage(
    (query) => get("/v1/topics", { query, signal }),
    (page) => page.topics,
  );
}
