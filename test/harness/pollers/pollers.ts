import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as after } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { NewPlace, Place } from "../crash/place.ts";
import type { Random } from "../random.ts";

const SERVER = fileURLToPath(new URL("./server.ts", import.meta.url));
const PROCESSES = 3;
const POLLERS = 4;
const POLL_MS = 15;
/** How long a process lives at least before it is killed. */
const LIFE_MS = 250;
const REVISION = "2026-07-28";

/** What was done, and what a poller saw that it should not have. */
export interface Polled {
  readonly kills: number;
  readonly tasks: number;
  readonly states: number;
  /** How often a process could not answer, since its store did not in time. */
  readonly refusals: number;
  readonly wrong: readonly string[];
}

/**
 * Clients poll tasks and answer their questions at one address, behind which are processes that are killed and started
 * again. `kills`: after so many, the clients finish their tasks.
 */
export async function pollThroughKills(place: NewPlace, kills: number, random: Random): Promise<Polled> {
  const members = new Members(place.place, random);
  const polled = { kills: 0, tasks: 0, states: 0, wrong: [] as string[] };
  let isOver = false;
  try {
    await members.startAll();
    const clients = Array.from({ length: POLLERS }, async () => {
      while (!isOver) {
        const { states, wrong } = await oneTask(members);
        polled.tasks += 1;
        polled.states += states;
        polled.wrong.push(...wrong);
      }
    });
    for (; polled.kills < kills; polled.kills++) {
      await after(LIFE_MS + random.below(LIFE_MS));
      await members.killOne();
    }
    isOver = true;
    await Promise.all(clients);
  } finally {
    await members.stopAll();
    place.remove();
  }
  return { ...polled, refusals: members.refusals };
}

interface Member {
  readonly child: ChildProcess;
  readonly port: number;
}

/** The processes behind the address. */
class Members {
  readonly #place: Place;
  readonly #random: Random;
  readonly #members: Member[] = [];
  /** How often a process could not answer. */
  refusals = 0;

  constructor(place: Place, random: Random) {
    this.#place = place;
    this.#random = random;
  }

  async startAll(): Promise<void> {
    for (let count = 0; count < PROCESSES; count++) this.#members.push(await this.#start());
  }

  async #start(): Promise<Member> {
    const child = fork(SERVER, [JSON.stringify(this.#place)], { execArgv: ["--import", "tsx"] });
    const [{ port }] = (await once(child, "message")) as [{ port: number }];
    return { child, port };
  }

  /** Kills a process in the middle of whatever it does. Another one takes its place. */
  async killOne(): Promise<void> {
    const index = this.#random.below(this.#members.length);
    const [member] = this.#members.splice(index, 1);
    member?.child.kill("SIGKILL");
    this.#members.push(await this.#start());
  }

  async stopAll(): Promise<void> {
    for (const { child } of this.#members) child.kill("SIGKILL");
  }

  /** The result of a request, at one process. Sent again, to any process, if that one was killed. */
  async ask(method: string, params: Record<string, unknown>): Promise<Record<string, unknown>> {
    for (;;) {
      const { port } = this.#random.pick(this.#members);
      try {
        const { result, error } = await send(port, method, params);
        if (result !== undefined) return result;
        // A server that did not get an answer of its database in time is asked again, as its Retry-After says.
        if (error?.data?.reason !== "store_failed") throw new Error(`${method}: ${JSON.stringify(error)}`);
        this.refusals += 1;
        await after(POLL_MS);
      } catch (error) {
        if (!isLost(error)) throw error;
        await after(POLL_MS);
      }
    }
  }
}

/** Whether a request got no answer, or that of a process that is being stopped. */
function isLost(error: unknown): boolean {
  return error instanceof TypeError || (error instanceof SyntaxError && error.message !== "");
}

interface Answer {
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly data?: { readonly reason?: string } };
}

async function send(port: number, method: string, params: Record<string, unknown>): Promise<Answer> {
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientCapabilities": {
      elicitation: {},
      extensions: { "io.modelcontextprotocol/tasks": {} },
    },
  };
  const headers = {
    ...{ "content-type": "application/json", "mcp-protocol-version": REVISION, "mcp-method": method },
    "mcp-name": String(params["name"] ?? params["taskId"]),
  };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { ...params, _meta } });
  const response = await fetch(`http://127.0.0.1:${port}/`, { method: "POST", headers, body });
  return (await response.json()) as Answer;
}

/** Polls one task to its end, and answers each question once it is seen. */
async function oneTask(members: Members): Promise<{ readonly states: number; readonly wrong: readonly string[] }> {
  const wrong: string[] = [];
  const call = { name: "asker", arguments: { message: "Begin." } };
  const { taskId } = await members.ask("tools/call", call);
  const answered: string[] = [];
  let last = "";
  let states = 0;
  for (;;) {
    const { status, inputRequests = {}, result } = await members.ask("tasks/get", { taskId });
    const keys = Object.keys(inputRequests as object);
    const state = `${String(status)} ${keys.join(",")}`;
    if (state !== last) states += 1;
    last = state;
    const [key] = keys;
    if (status === "input_required" && key !== undefined) {
      if (keys.length !== 1 || key !== `ask#${answered.length + 1}`)
        wrong.push(`${String(taskId)}: asks ${keys.join(", ")} after the answers to ${answered.join(", ")}`);
      const inputResponses = { [key]: { action: "accept", content: { go: true } } };
      await members.ask("tasks/update", { taskId, inputResponses });
      answered.push(key);
    } else if (status === "completed") {
      const text = JSON.stringify((result as { content: unknown }).content);
      if (answered.length !== 4 || !text.includes("1 2 3 4"))
        wrong.push(`${String(taskId)}: completed after ${answered.length} answers with ${text}`);
      return { states, wrong };
    } else if (status !== "working" && status !== "input_required") {
      wrong.push(`${String(taskId)}: is ${state}`);
      return { states, wrong };
    }
    await after(POLL_MS);
  }
}
