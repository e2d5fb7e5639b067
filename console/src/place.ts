/** Where the service is: a proxy may have put a prefix in front of its paths. */
const BELOW = /^(.*)\/console\/assets\//.exec(new URL(import.meta.url).pathname);

/** The prefix, such as `/tidelog`, or nothing: what precedes the console in this file's own address. */
export const PREFIX = BELOW?.[1] ?? "";

/** What precedes the service's paths in an address that others take. */
export const HOME = location.origin + PREFIX;

/** The path of the service in a URL that it named, which has the prefix. */
export function pathOf(url: string): string {
  return url.slice(PREFIX.length);
}
