import { newController } from "../../core/background.ts";
import type { Issue } from "../../core/errors.ts";
import type { Clock, Logger } from "../../core/ports.ts";
import { BodyText } from "../../http/body.ts";
import { unfitAt } from "../../http/errors.ts";
import type { WireHost } from "../../http/wire.ts";
import type { JsonLimits } from "../../protocol/json-text.ts";
import { parseJson } from "../../protocol/json-text.ts";
import type { AcpSettings } from "./options.ts";

/**
 * Fetches the contents of a session, only from origins that the host allows. One time limit and one size limit hold for
 * all of them.
 */
export class ResourceFetcher {
  readonly #settings: AcpSettings["sessions"];
  readonly #limits: JsonLimits;
  readonly #clock: Clock;
  readonly #logger: Logger;
  #controller: AbortController | undefined;
  #stop: (() => void) | undefined;
  #bytesLeft: number;

  constructor(settings: AcpSettings["sessions"], limits: JsonLimits, { clock, logger }: WireHost) {
    this.#settings = settings;
    this.#limits = limits;
    this.#logger = logger;
    this.#clock = clock;
    this.#bytesLeft = settings.maxBytes;
  }

  /** The JSON value at an address. `path` is the place of the address in the request. */
  async fetch(url: string, path: Issue["path"]): Promise<unknown> {
    const { origin, username, password } = new URL(url);
    if (!this.#settings.allowOrigins.has(origin) || username !== "" || password !== "")
      throw unfitAt(path, `the service does not fetch from ${origin}`);
    try {
      const text = await this.#read(url);
      return parseJson(text, this.#limits);
    } catch {
      // The client must not learn why it failed: the address may be one that only the service can reach.
      throw unfitAt(path, "the resource could not be read");
    }
  }

  /** Cancels pending requests. */
  close(): void {
    this.#stop?.();
    this.#controller?.abort();
  }

  async #read(url: string): Promise<string> {
    const response = await this.#settings.fetch(url, {
      headers: { accept: "application/json" },
      // An allowed origin may redirect to one that is not allowed.
      redirect: "error",
      signal: this.#signal(),
    });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const text = new BodyText(this.#settings.maxBytes);
    const reader = response.body?.getReader();
    for (let read = await reader?.read(); read?.done === false; read = await reader?.read()) {
      // Several are read at a time and share the limit.
      this.#bytesLeft -= read.value.length;
      if (this.#bytesLeft < 0) throw new Error("too many bytes");
      text.add(read.value);
    }
    return text.end();
  }

  #signal(): AbortSignal {
    if (this.#controller === undefined) {
      const controller = newController(this.#logger);
      this.#controller = controller;
      const { timeoutMs } = this.#settings;
      if (timeoutMs !== Number.POSITIVE_INFINITY)
        this.#stop = this.#clock.setTimeout(() => controller.abort(), timeoutMs);
    }
    return this.#controller.signal;
  }
}
