/** Commands for a shell that do what the page does. */
import { HOME } from "../place";

/** Text as one word of a POSIX shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export function curlOf(path: string): string {
  return `curl ${quoted(`${HOME}${path}`)}`;
}
