/** Server-sent events over fetch: EventSource cannot send a bearer token. */

export interface ServerEvent {
  event: string;
  id: string;
  data: string;
}

/** Takes a stream apart as it arrives (the HTML standard's algorithm, without reconnection). */
export class EventParser {
  #rest = "";
  #event = "";
  #id = "";
  #data: string[] = [];
  #isAfterReturn = false;

  /** Return the events that this piece of text completes. */
  push(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    if (this.#isAfterReturn && text.startsWith("\n")) text = text.slice(1);
    if (text) this.#isAfterReturn = text.endsWith("\r");
    const lines = (this.#rest + text).split(/\r\n|\r|\n/);
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      const event = this.#line(line);
      if (event) events.push(event);
    }
    return events;
  }

  #line(line: string): ServerEvent | undefined {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return undefined;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    return undefined;
  }

  #dispatch(): ServerEvent | undefined {
    const event = {
      event: this.#event || "message",
      id: this.#id,
      data: this.#data.join("\n"),
    };
    const isEmpty = this.#data.length === 0;
    this.#event = "";
    this.#data = [];
    return isEmpty ? undefined : event;
  }
}

/** Yield the events of a response until it ends: those that arrive together, or none of what only shows that it lives. */
export async function* eventsOf(response: Response): AsyncGenerator<ServerEvent[]> {
  if (!response.body) return;
  const parser = new EventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield parser.push(value);
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
