import type { HttpOptions, HttpSettings } from "../../http/options.ts";
import { amountsIn, bad, checkKeys, readHttpOptions, readOrigins } from "../../http/options.ts";
import type { Call } from "../../http/service.ts";

/** How runs are served over HTTP. Every property may be left out. */
export interface AcpOptions extends HttpOptions {
  /**
   * Also serves what is not part of ACP: clients may decline a question (`decline` instead of `await_resume`), read the
   * details of a run, which include its `metadata` and `labels` (`GET /runs/{run_id}/details`), read its events with
   * its steps and messages between them (`GET /runs/{run_id}/events?detail=true`), and send messages to a run
   * (`POST /runs/{run_id}/messages/{name}`). Default: false.
   */
  readonly extensions?: boolean | undefined;
  /** Sessions that clients bring along from elsewhere. */
  readonly sessions?: SessionOptions | undefined;
}

/**
 * From where the contents of a session that a client brings along are fetched. Contents of this service are read from
 * its store.
 */
export interface SessionOptions {
  /**
   * The origins that may be requested, for example `https://other.example.com`. Default: none, and no request is ever
   * made.
   */
  readonly allowOrigins?: readonly string[] | undefined;
  /** How requests are made. Default: the global `fetch`. */
  readonly fetch?: typeof fetch | undefined;
  /** How long all of a session may take, in milliseconds. Default: 10,000. */
  readonly timeoutMs?: number | undefined;
  /** Bytes in all of a session. Default: 10 MiB. */
  readonly maxBytes?: number | undefined;
}

/** The options with their defaults. */
export interface AcpSettings extends HttpSettings {
  readonly extensions: boolean;
  readonly sessions: {
    readonly allowOrigins: ReadonlySet<string>;
    readonly fetch: typeof fetch;
    readonly timeoutMs: number;
    readonly maxBytes: number;
  };
}

/** A request of ACP while it is answered. */
export type AcpCall = Call<AcpSettings>;

const sessionDefaults = { timeoutMs: 10_000, maxBytes: 10 * 1024 * 1024 };

/** Reads the options of a handler. Throws `invalid_argument` for an invalid one. */
export function readAcpOptions(options: AcpOptions): AcpSettings {
  const settings = readHttpOptions(options, ["extensions", "sessions"]);
  const { extensions = false, sessions = {} } = options;
  if (typeof extensions !== "boolean") throw bad("extensions", "true or false");
  checkKeys("options.sessions", sessions, ["allowOrigins", "fetch", "timeoutMs", "maxBytes"]);
  const { allowOrigins, fetch: fetchResource } = sessions;
  if (fetchResource !== undefined && typeof fetchResource !== "function") throw bad("sessions.fetch", "a function");
  return {
    ...settings,
    extensions,
    sessions: {
      allowOrigins: readOrigins("sessions.allowOrigins", allowOrigins),
      fetch: fetchResource ?? ((...request) => fetch(...request)),
      ...amountsIn(sessionDefaults, sessions),
    },
  };
}
