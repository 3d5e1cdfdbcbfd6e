import type { Clock, Logger } from "../core/ports.ts";
import type { Audit } from "../runtime/runs/audit.ts";
import { WireError } from "./errors.ts";
import type { AuthorizeRequest } from "./options.ts";

const MINUTE_MS = 60_000;
/** How many lines of refusals a handler gives to the logger in a minute. Clients decide how many refusals there are. */
const LINES_A_MINUTE = 100;

const explainedErrors = new WeakSet<WireError>();

/** Marks the error of a refusal for which the logger has a line that says more than that there was one. */
export function explained(error: WireError): WireError {
  explainedErrors.add(error);
  return error;
}

/** Tells the host of requests that are refused for want of rights: `onAudit` of each, the logger of a bounded number. */
export class Refusals {
  readonly #clock: Pick<Clock, "now">;
  readonly #logger: Logger;
  readonly #audit: Audit | undefined;
  #minute = Number.NEGATIVE_INFINITY;
  #lines = 0;
  /** How many refusals had no line since the last line. */
  #unlogged = 0;

  constructor(clock: Pick<Clock, "now">, logger: Logger, audit: Audit | undefined) {
    this.#clock = clock;
    this.#logger = logger;
    this.#audit = audit;
  }

  /** The client is not known: `authorize`, or the token of an inspector, has refused it. Errors of the host are no refusals. */
  note(error: unknown, { action, run_id, agent_name, message_name }: AuthorizeRequest): void {
    if (!(error instanceof WireError)) return;
    const { status } = error;
    const code = String(error.data.reason);
    if (!explainedErrors.has(error)) this.#log({ action, status, reason: code, run_id, agent_name });
    this.#audit?.tell({
      ...{ action: "access", outcome: "refused", by: null, tenant: null },
      ...{ asked: action, status, code, run_id, agent_name, message_name },
    });
  }

  #log(fields: Readonly<Record<string, unknown>>): void {
    const now = this.#clock.now();
    if (now - this.#minute >= MINUTE_MS) {
      this.#minute = now;
      this.#lines = 0;
    }
    if (this.#lines >= LINES_A_MINUTE) {
      this.#unlogged += 1;
      return;
    }
    this.#lines += 1;
    const known = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
    this.#logger.info("A request was refused.", this.#unlogged === 0 ? known : { ...known, unlogged: this.#unlogged });
    this.#unlogged = 0;
  }
}
