/*
 * A process of a hostile trial: it executes hostile runs, or it creates them over each face, answers them and judges what
 * it is told. Its one parameter holds its settings.
 */

import type { Run } from "cadenza";
import { AgentRuntime, CadenzaError, MemoryStore } from "cadenza";
import { durable } from "cadenza/store";
import { openPlace } from "../crash/place.ts";
import { Random } from "../random.ts";
import { addAgents, hostileOf, laterText, planFor, schemaOf, TYPED } from "./agents.ts";
import type { Face, FaceName, Seen, Talk, Told } from "./faces.ts";
import { faces as faceNames, openFaces, stackOf } from "./faces.ts";
import type { ProcessOrder, ProcessReport, ProcessSettings } from "./messages.ts";

/** After this time, a call or a run counts as stuck. */
const PATIENCE_MS = 120_000;
const SLOW_MS = 30_000;
const MAX_QUESTIONS = 5;
const kinds = ["input", "answer", "message", "output", "schema"] as const;

/** What a refusal over HTTP may say with a status from 500 on. */
const busy = /"reason":"(?:limit_reached|answer_pending|run_blocked)"/;
/** What no client may be told. */
/** What shows the runs of one chat. */
const ofChats = ["ACP session", "chat stream", "chat messages", "AG-UI thread"];
const leaks =
  /password of the database|SQLITE|sqlite|Postgres|postgres|jsonb|invalid byte sequence|unicode escape|\bat (?:async )?[\w.<>#]+ \(|node:internal|Maximum call stack|RangeError|TypeError/;

const settings = JSON.parse(process.argv[2] ?? "") as ProcessSettings;
const atWork = new Map<number, string>();
/** Without a parent, the reports go to the standard output. */
const tell = (report: ProcessReport): void => {
  if (process.send === undefined) process.stdout.write(`${JSON.stringify(report)}\n`);
  else process.send(report);
};
const die = (error: unknown): void =>
  tell({ is: "death", what: stackOf(error).slice(0, 1_000), at: [...atWork.values()] });
process.on("unhandledRejection", die);
process.on("uncaughtException", die);
process.on("message", ({ do: what }: ProcessOrder) => {
  if (what === "end") process.exit(0);
});

const { role, replays, seed } = settings;
const durability = {
  // No process dies here, and on a busy machine a statement may take as long as the trial has patience.
  ...{ leaseMs: 5 * PATIENCE_MS, heartbeatMs: 100, scanMs: 50, alwaysReplay: replays },
  evictAfterMs: role === "worker" ? 5 : 60_000,
};
const store =
  settings.place === undefined
    ? durable(new MemoryStore(), durability)
    : await openPlace(settings.place, { durability, timeoutMs: PATIENCE_MS });
const said = (message: string, fields?: object): void => {
  if (fields !== undefined && "error" in fields) tell({ is: "said", message: `${message} ${brief(fields.error)}` });
};
const runtime = new AgentRuntime({
  store,
  ...(role === "front" && { work: false }),
  cancelGraceMs: 50,
  logger: { debug: () => undefined, info: () => undefined, warn: () => undefined, error: said },
});
addAgents(runtime, role !== "front");

function brief(error: unknown): string {
  return stackOf(error).split("\n").slice(0, 2).join(" ").slice(0, 200);
}

async function allCases(): Promise<void> {
  const left = [...settings.cases];
  const worker = async (): Promise<void> => {
    for (let number = left.shift(); number !== undefined; number = left.shift()) await new Case(number).play();
  };
  await Promise.all(Array.from({ length: settings.atOnce }, worker));
}

/** A promise of the result, or of undefined when it takes too long. */
async function soon<T>(promise: Promise<T>, ms = PATIENCE_MS): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

const isFinal = (status: Run["status"]): boolean => ["completed", "failed", "cancelled"].includes(status);

/** One hostile value, or several, for one run. */
class Case {
  readonly #number: number;
  readonly #random: Random;
  readonly #face: FaceName;
  readonly #kind: (typeof kinds)[number];
  readonly #talk: Talk;
  readonly #faces: ReturnType<typeof openFaces>;
  /** Responses that go on until the run rests. */
  readonly #responses: Promise<Told>[] = [];
  readonly #since = Date.now();
  #sent = 0;
  #refused = 0;

  constructor(number: number) {
    this.#number = number;
    const own = `${seed}/${number}`;
    this.#random = new Random(own);
    this.#face = this.#random.pick(faceNames);
    this.#kind = this.#random.pick(kinds);
    const isTyped = this.#random.chance(0.15);
    const agent = this.#random.chance(0.7) ? "durable" : "plain";
    const plan = planFor(this.#kind, this.#random, own);
    this.#talk = {
      agent: isTyped ? `typed-${agent}-${this.#random.below(TYPED)}` : agent,
      plan,
      chat: `chat ${own} ${settings.name}`,
    };
    this.#faces = openFaces(runtime, (_run_id, response) => {
      response.catch(() => undefined);
      this.#responses.push(response);
    });
  }

  get #name(): string {
    const { agent, plan } = this.#talk;
    const value = plan.deed === "nothing" ? "" : hostileOf(plan).name;
    return `case ${this.#number}: ${this.#face}, ${this.#kind}, ${agent}, ${plan.deed} ${value}, schema ${schemaOf(plan).name}`;
  }

  get #own(): Face {
    return this.#faces.faces[this.#face];
  }

  #wrong(what: string): void {
    tell({ is: "wrong", number: this.#number, where: this.#name, what: what.slice(0, 1_500) });
  }

  async play(): Promise<void> {
    atWork.set(this.#number, this.#name);
    try {
      await this.#play();
    } catch (error) {
      this.#wrong(`the trial threw ${stackOf(error)}`);
    }
    atWork.delete(this.#number);
    const took = Date.now() - this.#since;
    if (took > SLOW_MS) tell({ is: "slow", number: this.#number, what: `${this.#name}: ${took} ms` });
    tell({ is: "case", report: { face: this.#face, kind: this.#kind, sent: this.#sent, refused: this.#refused } });
  }

  async #play(): Promise<void> {
    const run_id = await this.#begin();
    if (run_id === undefined) return;
    await this.#converse(run_id);
    const run = await runtime.getRun(run_id);
    if (!isFinal(run.status)) await this.#cancel(run_id);
    await this.#look(run_id);
    for (const response of this.#responses) {
      const told = await soon(response);
      if (told === undefined) this.#wrong("a response has not ended with its run");
      else this.#judge("a stream", told);
    }
  }

  /** The id of the run. Undefined: it was refused. */
  async #begin(): Promise<string | undefined> {
    const { agent } = this.#talk;
    const isHostile = this.#kind === "input";
    if (isHostile) {
      this.#sent += 1;
      const told = await soon(this.#own.begin(this.#talk, "hostile", this.#random));
      if (told !== undefined && this.#judge("the beginning", told) && told.run_id !== undefined) return told.run_id;
      if (told === undefined) this.#wrong("the beginning got no answer");
      return undefined;
    }
    const told = await soon(this.#own.begin(this.#talk, "good", this.#random));
    if (told === undefined) this.#wrong("a good beginning got no answer");
    if (told === undefined || (this.#judge("a good beginning", told) && told.run_id !== undefined)) return told?.run_id;
    // The hostile schema of a typed agent refuses every input.
    if (!agent.startsWith("typed")) this.#wrong(`a good beginning was refused: ${told.status} ${told.text}`);
    return undefined;
  }

  /** Answers and sends until the run has ended, or does not take what is good. */
  async #converse(run_id: string): Promise<void> {
    const { plan, agent } = this.#talk;
    const isTyped = agent.startsWith("typed");
    for (let round = 0; round < MAX_QUESTIONS; round++) {
      const mayHang = !isTyped && plan.deed !== "nothing" && plan.deed !== "receive" && hostileOf(plan).hangs === true;
      const run = await soon(this.#rest(run_id), mayHang ? 500 : PATIENCE_MS);
      if (run === undefined) {
        if (!mayHang) this.#wrong("the run does not rest");
        return;
      }
      if (isFinal(run.status)) return;
      const { await_requests } = await runtime.details(run_id);
      const [question] = await_requests;
      if (question === undefined) continue;
      const { await_id } = question;
      const isMain = question.message.parts[0]?.content === "Well?";
      const schema = isMain && !isTyped ? schemaOf(plan) : undefined;
      const asked = { run_id, await_id };
      if (plan.deed === "receive" && round === 0) await this.#send(run_id, isTyped);
      const times = this.#kind === "answer" ? 2 : this.#kind === "schema" && schema?.isSlow !== true ? 1 : 0;
      let isOpen = true;
      for (let time = 0; time < times && isOpen; time++) isOpen = await this.#answer(asked, "hostile");
      if (!isOpen) continue;
      // A schema that throws every other time takes the second answer.
      for (let time = 0; time < 3 && isOpen; time++) isOpen = await this.#answer(asked, "good");
      if (isOpen && schema?.takesGood !== false) this.#wrong("a good answer is not accepted");
      if (!isOpen && schema?.takesGood === false) this.#wrong("an answer is accepted that the schema never takes");
      if (isOpen) return;
    }
  }

  /** Gives an answer over the face. Whether the question is still open. */
  async #answer(asked: { readonly run_id: string; readonly await_id: string }, sends: "good" | "hostile") {
    if (sends === "hostile") this.#sent += 1;
    const told = await soon(this.#own.answer(this.#talk, asked, sends, this.#random));
    if (told === undefined) this.#wrong(`a ${sends} answer got no answer`);
    else this.#judge(`a ${sends} answer`, told);
    const { await_requests } = await runtime.details(asked.run_id);
    return await_requests.some(({ await_id }) => await_id === asked.await_id);
  }

  /** Sends messages until the run has received one. */
  async #send(run_id: string, isTyped: boolean): Promise<void> {
    const send = this.#own.send ?? this.#faces.faces["in process"].send;
    if (send === undefined) return;
    for (const sends of ["hostile", "hostile", "good"] as const) {
      if (sends === "hostile") this.#sent += 1;
      const told = await soon(send(run_id, sends, this.#random));
      if (told === undefined) this.#wrong(`a ${sends} message got no answer`);
      else if (!this.#judge(`a ${sends} message`, told) && sends === "good" && !isTyped)
        this.#wrong(`a good message was refused: ${told.status} ${told.text}`);
    }
  }

  /** The run when it has ended or waits for an answer. */
  async #rest(run_id: string): Promise<Run> {
    for await (const _ of runtime.events(run_id)) {
      // Waits for the end of the stream.
    }
    return runtime.getRun(run_id);
  }

  async #cancel(run_id: string): Promise<void> {
    const cancelled = runtime.cancel(run_id, { wait: true }).catch((error: unknown) => {
      if (CadenzaError.is(error) && error.code === "run_finished") return;
      this.#wrong(`cancel threw ${stackOf(error)}`);
    });
    if ((await soon(cancelled.then(() => true))) === undefined)
      this.#wrong("the run is stuck: its cancel does not end it");
  }

  /** Each face shows the run. */
  async #look(run_id: string): Promise<void> {
    const seen = await soon(this.#faces.read(this.#talk, run_id));
    if (seen === undefined) {
      this.#wrong("a face does not show the run");
      return;
    }
    const { status, error, session_id } = await runtime.getRun(run_id);
    if (error !== null && leaks.test(JSON.stringify(error)))
      this.#wrong(`the run's error says ${JSON.stringify(error)}`);
    // A hostile id of a session may have made another one.
    const isInChat = session_id === runtime.sessionId(this.#talk.chat);
    for (const one of seen) if (isInChat || !ofChats.includes(one.what)) this.#lookAt(one, status);
  }

  #lookAt({ what, status, text }: Seen, run: Run["status"]): void {
    // The session of a run that has not completed need not exist.
    const isMissing = what === "ACP session" && status === 404 && run !== "completed";
    if (status >= 300 && !isMissing) this.#wrong(`${what} is ${status}: ${text}`);
    const { agent, plan } = this.#talk;
    const isShown = run === "completed" && !agent.startsWith("typed") && this.#kind !== "input";
    const shows = [
      ...["ACP run", "ACP events", "chat messages", "AG-UI thread", "A2A task", "MCP task", "inspector log"],
      "client events",
    ];
    if (isShown && shows.includes(what) && !text.includes(laterText(plan)))
      this.#wrong(`${what} does not show what came later: ${text.slice(0, 500)}`);
  }

  /** Whether something was accepted. A refusal has to be a clear one. */
  #judge(what: string, { status, text }: Told): boolean {
    if (status >= 500 && !(status === 503 && busy.test(text))) this.#wrong(`${what} is ${status}: ${text}`);
    else if (status >= 400) {
      this.#refused += 1;
      // In process the caller may see what its own value has thrown.
      if (leaks.test(text) && this.#face !== "in process") this.#wrong(`${what} is refused with ${text}`);
      if (text === "") this.#wrong(`${what} is refused with ${status}, without a word`);
    } else if (leaks.test(text) && text.includes('"errorText"')) this.#wrong(`${what} says ${text}`);
    return status < 400;
  }
}

// Classes are not hoisted, so that the cases begin here.
if (role === "worker") tell({ is: "ready" });
else {
  // A case that cannot even be made is told like a death, and the trial ends.
  await allCases().catch(die);
  tell({ is: "done" });
}
