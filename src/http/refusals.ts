import { CadenzaError } from "../core/errors.ts";
import type { Clock, Logger } from "../core/ports.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Audit } from "../runtime/runs/audit.ts";
import { WireError } from "./errors.ts";
import type { AuthorizeRequest } from "./options.ts";

const MINUTE_MS = 60_000;
/** How many lines of refusals a handler gives to the logger in a minute. Clients decide how many refusals there are. */
const LINES_A_MINUTE = 100;

/** What is known of a refusal beside its error. */
interface Refused {
  /** The logger has a line that says more than that a request was refused. */
  readonly isExplained?: true;
  /** What the host was asked, if that was more than the path says. */
  readonly about?: AuthorizeRequest;
  /** The client, if the host has named it. */
  readonly client?: { readonly tenant: string; readonly principal: JsonValue };
}

const refused = new WeakMap<Error, Refused>();

/** Marks an error as a refusal for want of rights: the host is told of it where the request is answered. */
export function markRefused<Refusal extends Error>(error: Refusal, how: Refused = {}): Refusal {
  refused.set(error, { ...refused.get(error), ...how });
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

  /** Tells of an error that {@link markRefused} has marked, once. Other errors are none of rights. */
  note(error: unknown, asked: () => AuthorizeRequest): void {
    const how = error instanceof Error ? refused.get(error) : undefined;
    if (how === undefined) return;
    refused.delete(error as Error);
    const [status, code] = error instanceof WireError ? [error.status, String(error.data.reason)] : hiddenAs(error);
    const { action, run_id, agent_name, message_name } = how.about ?? asked();
    const { principal = null, tenant = null } = how.client ?? {};
    if (how.isExplained !== true) this.#log({ action, status, reason: code, run_id, agent_name });
    this.#audit?.tell({
      ...{ action: "access", outcome: "refused", by: principal, tenant },
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

/** What exists, and not for the client, gets the error of what does not exist. */
function hiddenAs(error: unknown): readonly [status: number, code: string] {
  return [404, CadenzaError.is(error) ? error.code : "not_found"];
}
