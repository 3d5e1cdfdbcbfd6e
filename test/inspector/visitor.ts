import type { FakeClock } from "../harness/clock.ts";

/** The names that the page posts: each changes something. */
export const actionNames = [
  ...["create", "answer", "decline", "cancel", "fork", "delete", "send", "pause", "resume"],
  ...["cancel-many", "retry-many", "move-many", "stop-many"],
  ...["pause-schedule", "resume-schedule", "trigger-schedule"],
];

/** Answers requests: a fetch handler, or `fetch` itself. */
export type Send = (request: Request) => Promise<Response>;

/** A page of the inspector, as far as its requests go. */
export class Visitor {
  readonly #send: Send;
  readonly #base: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(send: Send, base = "http://localhost", headers: Readonly<Record<string, string>> = {}) {
    this.#send = send;
    this.#base = base;
    this.#headers = headers;
  }

  get(path: string, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
    return this.#send(new Request(`${this.#base}/${path}`, { headers: { ...this.#headers, ...headers } }));
  }

  post(name: string, body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
    const all = { ...this.#headers, "content-type": "application/json", ...headers };
    const text = typeof body === "string" ? body : JSON.stringify(body);
    return this.#send(new Request(`${this.#base}/api/${name}`, { method: "POST", headers: all, body: text }));
  }

  /** The answer to an action that has to be accepted. */
  async act<Answer = object>(name: string, body: object): Promise<Answer> {
    const response = await this.post(name, body);
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${name}: ${response.status} ${text}`);
    return JSON.parse(text) as Answer;
  }

  async follow<Event>(path: string): Promise<Following<Event>> {
    const response = await this.get(`api/feed/${path}`);
    if (response.status !== 200 || response.body === null)
      throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return new Following(response.body);
  }
}

/** A feed that is read. */
export class Following<Event> {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #decoder = new TextDecoder();
  #text = "";
  #pending: Promise<Event | undefined> | undefined;

  constructor(body: ReadableStream<Uint8Array>) {
    this.#reader = body.getReader();
  }

  /** The next event, while the clock advances; undefined: the feed has ended. */
  async next(clock: FakeClock, stepMs = 500): Promise<Event | undefined> {
    this.#pending ??= this.#read();
    let isThere = false;
    const event = this.#pending.finally(() => {
      isThere = true;
    });
    for (let steps = 0; steps < 40 && !isThere; steps++) await clock.advance(steps === 0 ? 0 : stepMs);
    if (!isThere) throw new Error("The feed gave nothing.");
    this.#pending = undefined;
    return event;
  }

  /** The first event that is wanted. */
  async until(clock: FakeClock, isWanted: (event: Event) => boolean): Promise<Event> {
    for (let event = await this.next(clock); event !== undefined; event = await this.next(clock))
      if (isWanted(event)) return event;
    throw new Error("The feed has ended.");
  }

  /** Whether the feed gives nothing for so long. */
  async isSilent(clock: FakeClock, ms: number): Promise<boolean> {
    this.#pending ??= this.#read();
    let isThere = false;
    void this.#pending.finally(() => {
      isThere = true;
    });
    await clock.advance(ms);
    return !isThere;
  }

  leave(): Promise<void> {
    return this.#reader.cancel();
  }

  async #read(): Promise<Event | undefined> {
    for (;;) {
      const end = this.#text.indexOf("\n\n");
      if (end >= 0) {
        const lines = this.#text.slice(0, end).split("\n");
        this.#text = this.#text.slice(end + 2);
        const data = lines.find((line) => line.startsWith("data: "));
        if (data !== undefined) return JSON.parse(data.slice("data: ".length)) as Event;
        continue;
      }
      const { done, value } = await this.#reader.read();
      if (done) return undefined;
      this.#text += this.#decoder.decode(value, { stream: true });
    }
  }
}
