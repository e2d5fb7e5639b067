// @vitest-environment happy-dom
/** Every list in each of its states: loading, empty, partial, wrong, forbidden, huge. */
import { cleanup, render, screen, waitFor } from "@testing-library/preact";
import type { JSX } from "preact";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { isKafka } from "../src/api/backend";
import { scopes } from "../src/api/rights";
import { Groups } from "../src/pages/groups/groups";
import { Overview } from "../src/pages/overview/overview";
import { Service } from "../src/pages/service/service";
import { Subscriptions } from "../src/pages/subscriptions/subscriptions";
import { Topic } from "../src/pages/topic/topic";
import { Topics } from "../src/pages/topics/topics";
import { go } from "../src/ui/router";

type Reply = { status?: number; body: unknown } | "never" | "unreachable";

/** What the service answers, by the beginning of the path; what is not named is not found. */
let replies: Record<string, Reply> = {};
let asked: string[] = [];

const problem = (status: number, code: string, title: string, detail: string): Reply => ({
  status,
  body: { type: "about:blank", status, code, title, detail },
});
const FORBIDDEN = problem(403, "forbidden", "The key may not do this", "It needs the scope admin:*.");
const BROKEN = problem(500, "internal_error", "Something is wrong", "The log of the service says what.");

beforeEach(() => {
  replies = {};
  asked = [];
  scopes.value = ["read:*", "append:*", "admin:*", "metrics"];
  isKafka.value = false;
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe(): void {
        return undefined;
      }
      disconnect(): void {
        return undefined;
      }
      unobserve(): void {
        return undefined;
      }
    },
  );
  vi.stubGlobal("fetch", (url: string): Promise<Response> => {
    asked.push(url);
    const path = url.replace(/^\/console/, "").split("?")[0] ?? "";
    const name = Object.keys(replies)
      .sort((a, b) => b.length - a.length)
      .find((one) => path.startsWith(one));
    const reply = replies[name ?? ""] ?? problem(404, "not_found", "Not found", path);
    if (reply === "never") return new Promise(() => undefined);
    if (reply === "unreachable") return Promise.reject(new TypeError("failed to fetch"));
    return Promise.resolve(new Response(JSON.stringify(reply.body), { status: reply.status ?? 200 }));
  });
});

afterEach(cleanup);

const topicOf = (topic: string, more: object = {}): object => ({
  topic,
  topic_id: "x",
  partitions: 1,
  overrides: {},
  etag: '"1"',
  offline_partitions: [],
  has_ingest_profile: false,
  size_bytes: 10,
  newest_timestamp: null,
  ...more,
});
const topics = (...names: object[]): Reply => ({ body: { topics: names, next_page_token: null } });

interface Case {
  page: () => JSX.Element;
  at: string;
  /** What the page asks for first. */
  path: string;
  empty: Reply;
  emptyText: RegExp;
}

const CASES: [string, Case][] = [
  [
    "topics",
    { page: Topics, at: "/console/topics", path: "/v1/topics", empty: topics(), emptyText: /first record|no topic/i },
  ],
  [
    "groups",
    {
      page: Groups,
      at: "/console/groups",
      path: "/v1/group-lags",
      empty: { body: { groups: [], total_groups: 0, next_page_token: null } },
      emptyText: /no group|commit/i,
    },
  ],
  [
    "subscriptions",
    {
      page: Subscriptions,
      at: "/console/subscriptions",
      path: "/v1/subscriptions",
      empty: { body: { subscriptions: [], next_page_token: null } },
      emptyText: /Nothing is pushed yet/,
    },
  ],
  [
    "keys",
    { page: Service, at: "/console/service/keys", path: "/v1/keys", empty: { body: { keys: [] } }, emptyText: /key/i },
  ],
];

test.each(CASES)("%s: while they load nothing is claimed", (_name, { page: Page, at, path }) => {
  go(at);
  replies[path] = "never";
  const { container } = render(<Page />);
  expect(container.textContent).not.toMatch(/no topic|no group|no subscription|0 topics/i);
  expect(screen.queryByRole("alert")).toBeNull();
});

test.each(CASES)(
  "%s: none is an invitation and no error",
  async (_name, { page: Page, at, path, empty, emptyText }) => {
    go(at);
    replies[path] = empty;
    const { container } = render(<Page />);
    await waitFor(() => expect(container.textContent).toMatch(emptyText));
    expect(screen.queryByRole("alert")).toBeNull();
  },
);

test.each(CASES)("%s: what may not be seen is said as the service says it", async (_name, { page: Page, at, path }) => {
  go(at);
  replies[path] = FORBIDDEN;
  render(<Page />);
  expect((await screen.findAllByText(/It needs the scope|may not|scope/)).length).toBeGreaterThan(0);
});

test.each(CASES)(
  "%s: an error is told, with another attempt",
  async (_name, { page: Page, at, path, empty, emptyText }) => {
    go(at);
    replies[path] = BROKEN;
    const { container } = render(<Page />);
    await screen.findByText("The log of the service says what.");
    replies[path] = empty;
    for (const again of screen.getAllByRole("button", { name: "Try again" })) again.click();
    await waitFor(() => expect(container.textContent).toMatch(emptyText));
    await waitFor(() => expect(screen.queryByText("The log of the service says what.")).toBeNull());
  },
);

test("thousands of topics are counted, and only those in sight are in the page", async () => {
  go("/console/topics");
  replies["/v1/topics"] = topics(...Array.from({ length: 5000 }, (_, n) => topicOf(`t${n}`)));
  const { container } = render(<Topics />);
  await screen.findByText("5,000 topics");
  expect(container.querySelectorAll("a[data-row]").length).toBeLessThan(200);
});

test("a topic with partitions offline shows those that are there, and names the others", async () => {
  go("/console/topics/orders/partitions");
  replies["/v1/topics/orders"] = { body: { ...topicOf("orders"), partitions: 3, config: {} } };
  replies["/v1/topics/orders/partitions"] = { body: { partitions: [], offline_partitions: [1, 2] } };
  render(<Topic />);
  await screen.findByText(/Partitions 1, 2/);
});

test("an overview without the history keeps what it knows", async () => {
  go("/console/");
  replies["/readyz"] = { body: { status: "ready" } };
  replies["/v1/history"] = FORBIDDEN;
  replies["/v1/topics"] = topics(topicOf("orders", { newest_timestamp: Date.now() }));
  replies["/v1/group-lags"] = BROKEN;
  const { container } = render(<Overview />);
  await waitFor(() => expect(container.textContent).toContain("orders"));
  expect(container.textContent).not.toContain("Nothing needs attention");
});

test("a service that does not answer is no empty service", async () => {
  go("/console/topics");
  replies["/v1/topics"] = "unreachable";
  const { container } = render(<Topics />);
  await waitFor(() => expect(asked.some((url) => url.includes("/v1/topics"))).toBe(true));
  expect(container.textContent).not.toMatch(/first record|0 topics/i);
});
