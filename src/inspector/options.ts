import type { OperatedStore } from "../admin/admin.ts";
import type { AuthorizeRequest, Denial, Grant, HttpOptions, HttpSettings } from "../http/options.ts";
import { amountsIn, bad, checkKeys, readHttpOptions } from "../http/options.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { AgentRuntime } from "../runtime/api/agent-runtime.ts";
import type { Schedules } from "../schedules/schedules.ts";
import type { CodeTrials } from "./code-of-run.ts";

/** What an inspector shows: a runtime, or a store without one, which it only reads. */
export type InspectorTarget = AgentRuntime | OperatedStore;

/**
 * A request to an inspector: before its body is read with what its query names, and again when the body has named more. The
 * page and its lists are asked about as `list`, a run with its log as `read`, and a session as `session`.
 */
export interface InspectorRequest extends AuthorizeRequest {
  /** The tenant that the request names. */
  readonly tenant?: string | undefined;
}

/** What a user of an inspector may do. */
export interface InspectorGrant {
  /** The tenant whose runs the user sees. Those of others do not exist. Default: the empty tenant. */
  readonly tenant?: string | undefined;
  /** Whether the user sees the runs of all tenants, the processes and what waits for slots. Not beside `tenant`. Default: no. */
  readonly allTenants?: boolean | undefined;
  /** Whether the user may only look. Default: false. */
  readonly readOnly?: boolean | undefined;
  /** Which questions the user may answer or decline, as in `Grant` of `cadenza/http`. Default: all, and none with `readOnly`. */
  readonly answers?: Grant["answers"];
  /** In whose name the user acts: what agents see as `context.principal`, and logs as `by`. Default: null. */
  readonly principal?: JsonValue | undefined;
}

/** Authorizes a user (an {@link InspectorGrant}) or refuses it (`false`, a `Denial`, or an error that it throws: 403). */
export type AuthorizeInspector = (
  request: InspectorRequest,
) => InspectorGrant | Denial | false | Promise<InspectorGrant | Denial | false>;

/** How an inspector is served. Every property may be left out. */
export interface InspectorOptions
  extends Pick<
    HttpOptions,
    "basePath" | "baseUrl" | "allowedHosts" | "allowedOrigins" | "heartbeatMs" | "stallMs" | "limits"
  > {
  /**
   * Authorizes every request: before its body is read, and again when the body has named more. Default: the Node
   * listener needs its token and serves this machine alone; the fetch handler refuses everything.
   */
  readonly authorize?: AuthorizeInspector | undefined;
  /**
   * The token of a Node listener without `authorize`, of at least 16 visible ASCII characters. Default: a random one,
   * which goes to the logger in the line `The inspector is open.`
   */
  readonly token?: string | undefined;
  /** How often the page's views look for changes, in milliseconds. Default: 500. */
  readonly refreshMs?: number | undefined;
  /** What `schedules(runtime)` of `cadenza/schedules` gives: the page shows them, and pauses, resumes and triggers them. Default: none. */
  readonly schedules?: Schedules | undefined;
  /**
   * What `createPlayground()` of `cadenza/testing` gives: the page then forks runs from where edited code differs. Only for
   * the machine of who writes the agents. Default: none.
   */
  readonly playground?: CodeTrials | undefined;
}

/** The options with their defaults. */
export interface InspectorSettings extends HttpSettings {
  readonly authorizes: AuthorizeInspector | undefined;
  readonly token: string | undefined;
  /** Host names beside those of this machine, for a listener with a token. */
  readonly hosts: ReadonlySet<string>;
  readonly refreshMs: number;
  readonly schedules: Schedules | undefined;
  readonly playground: CodeTrials | undefined;
}

const names = [
  ...["basePath", "baseUrl", "allowedHosts", "allowedOrigins", "heartbeatMs", "stallMs", "limits"],
  ...["authorize", "token", "refreshMs", "schedules", "playground"],
];

/** Reads the options of an inspector. Throws `invalid_argument` for an invalid one. */
export function readInspectorOptions(options: InspectorOptions, takesToken: boolean): InspectorSettings {
  checkKeys("options", options, names);
  const { authorize, token, refreshMs, schedules, playground, ...others } = options;
  if (authorize !== undefined && typeof authorize !== "function") throw bad("authorize", "a function");
  if (token !== undefined && (typeof token !== "string" || !/^[\x21-\x7e]{16,}$/.test(token)))
    throw bad("token", "at least 16 visible ASCII characters");
  if (token !== undefined && (authorize !== undefined || !takesToken))
    throw bad("token", "no token beside authorize or for a fetch handler");
  if (schedules !== undefined && typeof schedules?.list !== "function")
    throw bad("schedules", "what schedules(runtime) gives");
  if (playground !== undefined && typeof playground?.codeOf !== "function")
    throw bad("playground", "what createPlayground() gives");
  const read = readHttpOptions(others, []);
  const isGuarded = authorize !== undefined;
  return {
    ...read,
    ...amountsIn({ refreshMs: 500 }, options),
    takesLinks: true,
    authorizes: authorize,
    token,
    schedules,
    playground,
    allowedHosts: isGuarded ? read.allowedHosts : undefined,
    hosts: read.allowedHosts ?? new Set(),
  };
}
