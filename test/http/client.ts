import { createParser } from "eventsource-parser";
import { checkResponse } from "./openapi-check.ts";
import { checkWithSdk } from "./sdk-check.ts";

/** Where the service runs, and how to reach it. */
export interface Place {
  /** The base URL of the service, without a slash at the end. */
  readonly base: string;
  readonly fetch: (request: Request) => Promise<Response>;
}

/** The parts of a request beside its method and path. */
export interface Sending {
  readonly headers?: Readonly<Record<string, string>>;
  /** A string or bytes are sent as they are, anything else as JSON. */
  readonly body?: unknown;
  readonly signal?: AbortSignal;
}

/** An answer that has been read to its end. */
export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The answer as JSON; undefined where it is not JSON. */
  readonly json: Json;
  /** The events of a stream. */
  readonly events: readonly SentEvent[];
}

export interface Json {
  readonly [key: string]: Json;
}

export interface SentEvent {
  readonly id: string | undefined;
  readonly event: string | undefined;
  readonly data: Json & { readonly type: string };
}

export const JSON_TYPE = { "content-type": "application/json" };

/** Sends requests to a service, and checks every answer against the OpenAPI document and with the official client. */
export class Client {
  readonly #place: Place;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(place: Place, headers: Readonly<Record<string, string>> = {}) {
    this.#place = place;
    this.#headers = headers;
  }

  get base(): string {
    return this.#place.base;
  }

  /** A client of the same service, with further headers. */
  with(headers: Readonly<Record<string, string>>): Client {
    return new Client(this.#place, { ...this.#headers, ...headers });
  }

  get(path: string, headers: Readonly<Record<string, string>> = {}): Promise<Reply> {
    return this.send("GET", path, { headers });
  }

  /** Posts JSON with its content type. */
  post(path: string, body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Reply> {
    return this.send("POST", path, { body, headers: { ...JSON_TYPE, ...headers } });
  }

  /** Posts JSON as the official Python client does: without a content type. */
  postUntyped(path: string, body: unknown): Promise<Reply> {
    return this.send("POST", path, { body });
  }

  /** Creates a run. */
  run(agent_name: string, input: string | readonly object[], more: object = {}): Promise<Reply> {
    const messages = typeof input === "string" ? [{ role: "user", parts: [{ content: input }] }] : input;
    return this.post("/runs", { agent_name, input: messages, ...more });
  }

  /** Waits until a run rests, and gives its events. */
  async follow(runId: unknown): Promise<readonly SentEvent[]> {
    return (await this.get(`/runs/${runId}/events`, { accept: "text/event-stream" })).events;
  }

  async send(method: string, path: string, sending: Sending = {}): Promise<Reply> {
    const response = await this.open(method, path, sending);
    const text = await response.text();
    const { status, headers } = response;
    const type = headers.get("content-type") ?? "";
    const events = type.startsWith("text/event-stream") ? parseEvents(text) : [];
    const json = (type.startsWith("application/json") && text !== "" ? JSON.parse(text) : undefined) as Json;
    if (method === "GET" || method === "POST") {
      checkResponse(method, path, status, headers, text, json, events);
      checkWithSdk(method, path, status, json, events);
    }
    return { status, headers, text, json, events };
  }

  /** Sends a request, and does not read the body of the answer. */
  open(method: string, path: string, { headers, body, signal }: Sending = {}): Promise<Response> {
    const bytes = body === undefined ? undefined : bytesOf(body);
    return this.#place.fetch(
      new Request(`${this.#place.base}${path}`, {
        method,
        headers: { ...this.#headers, ...headers },
        redirect: "manual",
        ...(bytes !== undefined && { body: bytes }),
        ...(signal !== undefined && { signal }),
      }),
    );
  }
}

/** Reads a stream of events with the parser of another package. */
export function parseEvents(text: string): SentEvent[] {
  const events: SentEvent[] = [];
  const parser = createParser({
    onEvent: ({ id, event, data }) => events.push({ id, event, data: JSON.parse(data) as SentEvent["data"] }),
    onError: (error) => {
      throw error;
    },
  });
  parser.feed(text);
  return events;
}

function bytesOf(body: unknown): Uint8Array<ArrayBuffer> {
  if (body instanceof Uint8Array) return new Uint8Array(body);
  // `fetch` adds no content type for bytes.
  return new TextEncoder().encode(typeof body === "string" ? body : JSON.stringify(body));
}
