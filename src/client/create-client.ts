import type { CallableAgent } from "../runtime/agent/agent-schemas.ts";
import type { WaitingOptions } from "./client-run.ts";
import { ClientRun } from "./client-run.ts";
import type { ConnectionOptions } from "./connection.ts";
import { Connection } from "./connection.ts";
import { messagesOf } from "./input.ts";
import type { InputTo, Named, NameOf, OutputOf } from "./types.ts";
import { isRun } from "./wire.ts";

/** How a client reaches its server. */
export interface ClientOptions extends ConnectionOptions {
  /** The address at which the runtime is mounted with `cadenza/http`. */
  readonly url: string;
}

/** The options of a new run. */
export interface ClientRunOptions extends WaitingOptions {
  /** A UUID. A session that does not exist is created. Default: the run has a session of its own. */
  readonly session_id?: string | undefined;
  /** A repeated request with the same key gives the same run. Default: one of its own, so that a request that is sent again because of a broken connection creates one run. */
  readonly idempotencyKey?: string | undefined;
}

/** The agents of a server, for its callers. `Known` is the type of the list that its runtime is made with. */
export interface Client<Known extends readonly CallableAgent[]> {
  /** Creates a run. Resolves when the server has accepted it. */
  run<Name extends NameOf<Known>>(
    agent: Name,
    input: InputTo<Named<Known, Name>>,
    options?: ClientRunOptions,
  ): Promise<ClientRun<Named<Known, Name>>>;
  /** Creates a run, and resolves with what it has given when it has completed: see {@link ClientRun.result}. */
  call<Name extends NameOf<Known>>(
    agent: Name,
    input: InputTo<Named<Known, Name>>,
    options?: ClientRunOptions,
  ): Promise<OutputOf<Named<Known, Name>>>;
  /**
   * A run that exists already, of the agent with this name. Nothing is sent. As long as the application holds the run, a
   * call with the same id gives the same one: a component may call it each time that it renders.
   */
  attach<Name extends NameOf<Known>>(agent: Name, run_id: string): ClientRun<Named<Known, Name>>;
}

/**
 * A client of the agents that a server has mounted with `cadenza/http`. It needs no package and runs in browsers and in
 * Node. The type argument is the type of the list of agents, which costs a page nothing: it is imported with
 * `import type`. Throws `invalid_argument` for an invalid option.
 *
 * @example
 * ```ts
 * import { AgentRuntime, defineAgent } from "cadenza";
 * import { createClient } from "cadenza/client";
 * import { createAcpHandler } from "cadenza/http";
 * import { z } from "zod";
 *
 * const triage = defineAgent("triage", {
 *   input: z.object({ text: z.string() }),
 *   output: z.object({ category: z.enum(["refund", "other"]) }),
 * }).run(({ text }) => ({ category: text.includes("money") ? "refund" : "other" }));
 * const agents = [triage];
 * const handler = createAcpHandler(new AgentRuntime({ agents }), { extensions: true });
 *
 * const fetch: typeof globalThis.fetch = (url, init) => handler(new Request(url, init));
 * const client = createClient<typeof agents>({ url: "http://localhost", fetch });
 * const { category } = await client.call("triage", { text: "I want my money back." });
 * console.log(category); // → refund
 * ```
 */
export function createClient<Known extends readonly CallableAgent[] = readonly CallableAgent[]>(
  options: ClientOptions,
): Client<Known> {
  const connection = new Connection(options.url, options);
  const runs = new Map<string, WeakRef<ClientRun>>();
  const forget = new FinalizationRegistry<string>((run_id) => {
    if (runs.get(run_id)?.deref() === undefined) runs.delete(run_id);
  });

  function runOf(run_id: string): ClientRun {
    const known = runs.get(run_id)?.deref();
    if (known !== undefined) return known;
    const run = new ClientRun<CallableAgent>(connection, run_id);
    runs.set(run_id, new WeakRef(run));
    forget.register(run, run_id);
    return run;
  }

  async function run(agent_name: string, input: unknown, options: ClientRunOptions = {}): Promise<ClientRun> {
    const { session_id, idempotencyKey = connection.machine.key(), signal } = options;
    const body = {
      agent_name,
      input: messagesOf(input),
      mode: "async",
      ...(session_id !== undefined && { session_id }),
    };
    const headers = { "idempotency-key": idempotencyKey };
    const created = await connection.json({ method: "POST", path: "/runs", body, headers, signal }, isRun);
    return runOf(created.run_id);
  }

  const client: Client<readonly CallableAgent[]> = {
    run: run as Client<readonly CallableAgent[]>["run"],
    call: (async (agent, input, options) => (await run(agent, input, options)).result(options)) as Client<
      readonly CallableAgent[]
    >["call"],
    attach: ((_agent, run_id) => runOf(run_id)) as Client<readonly CallableAgent[]>["attach"],
  };
  return client as unknown as Client<Known>;
}
