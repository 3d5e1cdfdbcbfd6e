import type { Handler } from "cadenza/http";

/** The connection of one device to a server. It counts what goes over it. */
export class Connection {
  /** The requests, each with its method and path. */
  readonly requests: string[] = [];
  /** What has come in streams, without `[DONE]`. */
  readonly items: unknown[] = [];
  readonly #host: string;
  readonly #handler: () => Handler;
  readonly #loss: Error;
  #broken = new AbortController();

  /** `handler`: that of the server that runs now. `loss`: what a reader gets when the connection breaks off. */
  constructor(host: string, handler: () => Handler, loss: Error = new TypeError("network error")) {
    this.#host = host;
    this.#handler = handler;
    this.#loss = loss;
  }

  readonly send = async (url: string | URL | Request, init: RequestInit = {}): Promise<Response> => {
    const { method = "GET" } = init;
    this.requests.push(`${method} ${String(url).slice(this.#host.length)}`);
    const { signal } = this.#broken;
    const signals = [signal, ...(init.signal ? [init.signal] : [])];
    const response = await this.#handler()(new Request(url, { ...init, signal: AbortSignal.any(signals) }));
    return this.#overTheWire(response, signal);
  };

  /** Loses what is on its way. What is sent after that arrives. */
  breakOff(): void {
    this.#broken.abort();
    this.#broken = new AbortController();
  }

  /** A body that breaks off when the connection does. */
  #overTheWire(response: Response, signal: AbortSignal): Response {
    const { body } = response;
    if (body === null) return response;
    const reader = body.getReader();
    const broken = new Promise<never>((_, reject) => {
      signal.addEventListener("abort", () => reject(this.#loss));
    });
    broken.catch(() => {});
    const lines = new Lines((line) => this.#note(line));
    const wire = new ReadableStream<Uint8Array>({
      async pull(controller) {
        const { done, value } = await Promise.race([reader.read(), broken]);
        if (done) return controller.close();
        lines.add(value);
        controller.enqueue(value);
      },
      cancel: (reason) => reader.cancel(reason),
    });
    return new Response(wire, response);
  }

  #note(line: string): void {
    if (line.startsWith("data: ") && line !== "data: [DONE]")
      this.items.push(JSON.parse(line.slice("data: ".length)) as unknown);
  }
}

/** The lines of a text that comes in chunks. */
class Lines {
  readonly #take: (line: string) => void;
  readonly #decoder = new TextDecoder();
  #rest = "";

  constructor(take: (line: string) => void) {
    this.#take = take;
  }

  add(chunk: Uint8Array): void {
    const lines = (this.#rest + this.#decoder.decode(chunk, { stream: true })).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.#take(line);
  }
}
