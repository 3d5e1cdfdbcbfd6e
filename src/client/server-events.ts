/** A server-sent event. */
export interface ServerEvent {
  /** The last id that the server has given; undefined before the first. */
  readonly id: string | undefined;
  readonly data: string;
}

/** The events in a body, as they come. Ends where the body ends, and throws where it breaks off. */
export async function* serverEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let id: string | undefined;
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      for (let end = text.search(/\r?\n/); end !== -1; end = text.search(/\r?\n/)) {
        const line = text.slice(0, end);
        text = text.slice(text[end] === "\r" ? end + 2 : end + 1);
        if (line === "") {
          if (data.length > 0) yield { id, data: data.join("\n") };
          data = [];
        } else if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        else if (line.startsWith("id:")) id = line.slice(line[3] === " " ? 4 : 3);
      }
    }
  } finally {
    reader.cancel().catch(() => {
      // It is over.
    });
  }
}
