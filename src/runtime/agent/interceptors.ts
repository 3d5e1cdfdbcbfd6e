import { aboutStored } from "../../core/about-run.ts";
import { frozen } from "../../core/frozen.ts";
import type { Carrier, CreatedEntry, QuestionKind } from "../../core/log.ts";
import type { Logger, RunKey } from "../../core/ports.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import { isOwn } from "../../core/tenants.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Message, MessagePart } from "../../protocol/message.ts";
import { badArgument, checkFunction, checkKeys, checkObject } from "./check.ts";

/**
 * Wraps what agents do, for example to trace or to measure it. Each method gets facts and `next`, which does the work
 * and is called once. An interceptor that comes first in the list is the outermost. What it sets up around `next`, such
 * as an `AsyncLocalStorage`, holds in the code of the agent. An agent that is called again for the same run, since it
 * was evicted or its process died, does not do again what is in the log, and that is not wrapped again.
 *
 * @example
 * ```ts
 * import { AgentRuntime, type Interceptor } from "cadenza";
 *
 * const timing: Interceptor = {
 *   async step({ name, attempt }, next) {
 *     try {
 *       return await next();
 *     } finally {
 *       console.log(`${name}, attempt ${attempt}`); // → load, attempt 1
 *     }
 *   },
 * };
 * const runtime = new AgentRuntime({ interceptors: [timing] });
 * runtime.register("report", async (_input, { step }) => step("load", () => "The figures."));
 * await runtime.createRun({ agent_name: "report", input: "" });
 * ```
 */
export interface Interceptor {
  /**
   * When a run is created, before it is stored, in the async context of its creator. The texts that it gives are stored
   * with the run, and `run` gets them as `carrier`, also in other processes. It observes: what it throws goes to the
   * logger, and the run carries nothing.
   */
  readonly create?: ((info: CreateInfo) => Carrier | undefined) | undefined;
  /**
   * Around each call of an agent function. `next` resolves when the function is through, and rejects with what it throws.
   * The run fails with what this method rejects with. It completes when this method resolves.
   */
  readonly run?: ((info: RunInfo, next: () => Promise<RunOutcome>) => Promise<unknown>) | undefined;
  /**
   * Around each attempt of a step. `next` gives the result of its function. What this method resolves with is the
   * result of the step, and what it rejects with counts as thrown by the function.
   */
  readonly step?: ((info: StepInfo, next: () => Promise<unknown>) => Promise<unknown>) | undefined;
  /**
   * Around each question, from when it is asked until it is settled. It observes: the agent does not wait for this
   * method, and what it rejects with goes to the logger.
   */
  readonly ask?: ((info: AskInfo, next: () => Promise<AskOutcome>) => Promise<unknown>) | undefined;
}

/** How a call of an agent function has ended. `left`: the run was evicted, or continues in another process. */
export type RunOutcome = "ended" | "left";

/** What has become of a question. `left`: it is still open, and the run is not in this process any more. */
export type AskOutcome = "answered" | "declined" | "expired" | "withdrawn" | "left";

/** A new run. */
export interface CreateInfo {
  readonly tenant: string;
  readonly run_id: string;
  readonly agent_name: string;
  /** Null for none. */
  readonly version: string | null;
  readonly durable: boolean;
  readonly session_id: string;
  /** The run that has started this one; null for a root. */
  readonly parent_run_id: string | null;
  readonly metadata: JsonValue;
  readonly input: readonly Message[];
}

/** A call of an agent function. */
export interface RunInfo extends CreateInfo {
  readonly principal: JsonValue;
  /** What the interceptors of the run's creator have given it to carry. Empty for nothing. */
  readonly carrier: Carrier;
  /** Whether the agent is called for the first time in this run. */
  readonly isFirst: boolean;
  readonly signal: AbortSignal;
}

/** An attempt of a step. */
export interface StepInfo extends Pick<RunInfo, "tenant" | "run_id" | "agent_name"> {
  readonly name: string;
  /** The key of the step in the run, such as `load#2`. */
  readonly key: string;
  readonly attempt: number;
  readonly signal: AbortSignal;
}

/** A question. */
export interface AskInfo extends Pick<RunInfo, "tenant" | "run_id" | "agent_name"> {
  readonly await_id: string;
  /** Null for none. */
  readonly name: string | null;
  readonly kind: QuestionKind;
  /** The question. */
  readonly parts: readonly MessagePart[];
}

type Method = keyof Interceptor;
type Wrap<Info, Value> = (info: Info, next: () => Promise<Value>) => Promise<unknown>;

/** The interceptors of a runtime as one. A method that none has is undefined, and costs nothing. */
export interface Interceptors {
  readonly create: ((info: CreateInfo) => Carrier | undefined) | undefined;
  readonly run: Wrap<RunInfo, RunOutcome> | undefined;
  readonly step: Wrap<StepInfo, unknown> | undefined;
  readonly ask: Wrap<AskInfo, AskOutcome> | undefined;
}

/** Reads the option. Throws `invalid_argument`. */
export function readInterceptors(given: readonly Interceptor[] | undefined = []): Interceptors {
  if (!Array.isArray(given)) throw badArgument("options.interceptors", "a list of interceptors", given);
  for (const [index, interceptor] of given.entries()) checkInterceptor(`options.interceptors.${index}`, interceptor);
  return {
    create: carried(given.flatMap(({ create }) => create ?? [])),
    run: compose(given.flatMap(({ run }) => run ?? [])),
    step: compose(given.flatMap(({ step }) => step ?? [])),
    ask: compose(given.flatMap(({ ask }) => ask ?? [])),
  };
}

function checkInterceptor(name: string, interceptor: unknown): void {
  const methods: readonly Method[] = ["create", "run", "step", "ask"];
  checkObject(name, interceptor);
  checkKeys(name, interceptor, methods);
  for (const method of methods) {
    const wrap = (interceptor as Interceptor)[method];
    if (wrap !== undefined) checkFunction(`${name}.${method}`, wrap);
  }
}

/** Each gives some texts. A text of a later one replaces the text of the same name. */
function carried(creates: readonly ((info: CreateInfo) => Carrier | undefined)[]): Interceptors["create"] {
  if (creates.length === 0) return undefined;
  return (info) => {
    const carrier = Object.assign({}, ...creates.map((create) => synchronous(create(info)))) as Readonly<
      Record<string, unknown>
    >;
    for (const [name, text] of Object.entries(carrier))
      if (typeof text !== "string") throw badArgument(`the interceptor's ${name}`, "a string", text);
    return Object.keys(carrier).length === 0 ? undefined : (carrier as Carrier);
  };
}

/** What an interceptor has returned. Throws for a promise: the creation of a run waits for no interceptor. */
function synchronous<Value>(given: Value): Value {
  if (!isPromise(given)) return given;
  given.catch(ignore);
  throw new TypeError("create returned a promise. It has to give what the run carries at once.");
}

/** What interceptors learn of a new run. */
export function createInfo({ tenant, run_id }: RunKey, created: CreatedEntry): CreateInfo {
  const { agent_name, version = null, durable = false, session_id, parent, metadata = null, input } = created;
  const parent_run_id = parent?.run_id ?? null;
  return { tenant, run_id, agent_name, version, durable, session_id, parent_run_id, metadata: frozen(metadata), input };
}

/** The first entry of a new run with what its interceptors give it to carry. */
export function withCarrier(
  { create }: Interceptors,
  key: RunKey,
  created: CreatedEntry,
  logger: Logger,
): CreatedEntry {
  try {
    const carrier = isOwn(key.tenant) ? undefined : create?.(createInfo(key, created));
    return carrier === undefined ? created : { ...created, carrier };
  } catch (error) {
    logger.warn("An interceptor of new runs failed.", { ...aboutStored({ key, created }), error });
    return created;
  }
}

function compose<Info, Value>(wraps: readonly Wrap<Info, Value>[]): Wrap<Info, Value> | undefined {
  if (wraps.length === 0) return undefined;
  return (info, next) => {
    // The types of the values between interceptors are those that they give each other.
    const from = (index: number): Promise<unknown> => {
      const wrap = wraps[index];
      return wrap === undefined ? next() : wrap(info, () => from(index + 1) as Promise<Value>);
    };
    return from(0);
  };
}
