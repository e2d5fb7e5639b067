/** Calls of the HTTP API, typed by its OpenAPI document. */
import { PREFIX } from "../place";
import { parseJson, toJson } from "./json";
import type { components, paths } from "./schema";
import { isAsked, token } from "./session";

export type Schemas = components["schemas"];
export type Int = number | bigint;
export type Method = "get" | "put" | "post" | "patch" | "delete";
type Json<R> = R extends { content: infer C } ? C[keyof C & `application/json${string}`] : never;
type Good<R> = { [S in keyof R]: S extends 200 | 201 | 202 ? Json<R[S]> : never }[keyof R];
type Operation<P extends keyof paths, M extends Method> = NonNullable<paths[P][M]>;
export type Answer<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { responses: infer R } ? Good<R> : never;
type Named<O, K extends string> = O extends { parameters: infer A }
  ? K extends keyof A
    ? A[K]
    : undefined
  : undefined;
type Sent<O> = O extends { requestBody?: { content: infer C } } ? Json<{ content: C }> : undefined;

export interface Request<P extends keyof paths, M extends Method> {
  path?: Named<Operation<P, M>, "path"> & object;
  query?: Named<Operation<P, M>, "query"> & object;
  body?: Sent<Operation<P, M>>;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

/** A problem document (RFC 9457), or a connection that failed. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly title: string,
    readonly detail: string,
    readonly document: Record<string, unknown> = {},
  ) {
    super(detail);
  }
}

/** Fill in a path of the document and its query. */
export function urlOf(path: string, parts: object = {}, query: object = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(String((parts as Record<string, unknown>)[name])),
  );
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") asked.set(name, String(value));
  }
  return asked.size ? `${filled}?${asked}` : filled;
}

/** Send a request to a path of the service with the key; anything but 2xx is a Problem. */
export async function send(url: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token.value) headers.set("authorization", `Bearer ${token.value}`);
  let response: Response;
  try {
    response = await fetch(PREFIX + url, { ...init, headers });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "The service does not answer", "It is stopped, or the network is down.");
  }
  if (response.ok || response.status === 304) return response;
  if (response.status === 401) isAsked.value = true;
  throw await problemOf(response);
}

async function problemOf(response: Response): Promise<Problem> {
  const text = await response.text();
  try {
    const document = parseJson(text) as Record<string, unknown>;
    const { code, title, detail = "" } = document as Record<string, string>;
    return new Problem(response.status, String(code), String(title), detail, document);
  } catch {
    return new Problem(response.status, "unknown", `HTTP ${response.status}`, text.slice(0, 500));
  }
}

export async function call<P extends keyof paths, M extends Method>(
  method: M,
  path: P,
  request: Request<P, M> = {},
): Promise<{ data: Answer<P, M>; headers: Headers }> {
  const init: RequestInit = { method: method.toUpperCase(), headers: { ...request.headers } };
  if (request.body !== undefined) {
    init.body = toJson(request.body);
    init.headers = { "content-type": "application/json", ...request.headers };
  }
  if (request.signal) init.signal = request.signal;
  const response = await send(urlOf(path, request.path, request.query), init);
  const text = await response.text();
  return {
    data: (text ? parseJson(text) : undefined) as Answer<P, M>,
    headers: response.headers,
  };
}

/** What a GET answers. */
export async function get<P extends keyof paths>(path: P, request: Request<P, "get"> = {}): Promise<Answer<P, "get">> {
  return (await call("get", path, request)).data;
}
