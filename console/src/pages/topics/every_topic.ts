/** All topics that the caller may see, page by page to the end. */
import { get, type Schemas } from "../../api/client";
import { everyPage } from "../../ui/pages";

export function everyTopic(signal: AbortSignal): Promise<Schemas["TopicSummary"][]> {
  return everyPage(async (page_token) => {
    const page = await get("/v1/topics", { query: { page_size: 1000, page_token }, signal });
    return { entries: page.topics, next: page.next_page_token };
  });
}
