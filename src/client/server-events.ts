/** A server-sent event. */
export interface ServerEvent {
  /** The last id that the server has given; undefined before the first. */
  readonly id: string | undefined;
  readonly data: string;
  /** After how many milliseconds the server wants to be asked again; undefined if this event does not say. */
  readonly retryMs: number | undefined;
}

/**
 * The events in a body, as they come. Each byte is looked at once, however long an event is. `hear` is called for what only
 * a stream of events has, such as a heartbeat.
 */
export async function* serverEvents(
  bytes: AsyncIterable<Uint8Array>,
  hear: () => void,
): AsyncGenerator<ServerEvent, void> {
  const lines = new Lines();
  let id: string | undefined;
  let data: string[] = [];
  let retryMs: number | undefined;
  for await (const chunk of bytes) {
    for (const line of lines.in(chunk)) {
      if (/^(?:data|id|event|retry)?:/.test(line)) hear();
      if (line === "") {
        if (data.length > 0) yield { id, data: data.join("\n"), retryMs };
        data = [];
        retryMs = undefined;
      } else if (line.startsWith("data:")) data.push(valueIn(line, 5));
      else if (line.startsWith("id:")) id = valueIn(line, 3);
      else if (/^retry: ?\d+$/.test(line)) retryMs = Number(valueIn(line, 6));
    }
  }
}

function valueIn(line: string, from: number): string {
  return line.slice(line[from] === " " ? from + 1 : from);
}

/** The lines of a text that comes in chunks. One that does not end is left out. */
class Lines {
  readonly #decoder = new TextDecoder();
  /** The pieces of a line that has no end yet. They are joined once. */
  #pieces: string[] = [];

  *in(chunk: Uint8Array): Generator<string, void> {
    const text = this.#decoder.decode(chunk, { stream: true });
    let from = 0;
    for (let end = text.indexOf("\n"); end !== -1; end = text.indexOf("\n", from)) {
      const line = this.#pieces.join("") + text.slice(from, end);
      this.#pieces = [];
      from = end + 1;
      yield line.endsWith("\r") ? line.slice(0, -1) : line;
    }
    if (from < text.length) this.#pieces.push(text.slice(from));
  }
}
