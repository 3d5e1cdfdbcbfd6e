import { randomUUID } from "node:crypto";
import { agents, resultOf, textAnswer, textMessage, textOf } from "./agents.mjs";

/** Which status may follow which. */
const transitions = {
  created: ["in-progress", "cancelling", "failed"],
  "in-progress": ["awaiting", "cancelling", "completed", "failed"],
  awaiting: ["in-progress", "cancelling", "failed"],
  cancelling: ["cancelled"],
};
const atRest = new Set(["awaiting", "completed", "failed", "cancelled"]);

/**
 * What an application would write by hand. A run does not depend on its readers. Events have a number and a time, and
 * are kept in an append-only log. A reader has a position in the log and may come late. Each run can be stopped,
 * transitions are checked, and parts are gathered into messages. There are no idempotency keys, sessions, limits,
 * deadlines or store, and input is not checked.
 */
class Run {
  id = randomUUID();
  status = "created";
  createdAt = Date.now();
  endedAt;
  output = [];
  events = [];
  question;
  error;
  stop = new AbortController();
  #message;
  #watchers = [];
  #generator;

  constructor(agent, input) {
    this.agent = agent;
    this.input = input;
    this.#generator = agents[agent](input, { signal: this.stop.signal });
    this.#record("run.created");
    void this.#advance();
  }

  resume(answer) {
    if (this.status !== "awaiting") throw new Error(`A run that is ${this.status} cannot be resumed.`);
    this.question = undefined;
    void this.#advance(answer);
  }

  /** Resolves as soon as the run waits or has ended. */
  async rest() {
    while (!atRest.has(this.status)) await this.#change();
    return this;
  }

  /** The events from a position on, until the run rests. */
  async *read(position = 0) {
    for (let next = position; ; await this.#change()) {
      while (next < this.events.length) yield this.events[next++];
      if (atRest.has(this.status)) return;
    }
  }

  async #advance(answer) {
    try {
      this.#move("in-progress");
      let step = await this.#generator.next(answer);
      while (!step.done) {
        if (this.stop.signal.aborted) return await this.#cancel();
        if (step.value.type === "message") return this.#ask(step.value.message);
        this.#show(step.value);
        step = await this.#generator.next();
      }
      this.#closeMessage();
      this.#end("completed");
    } catch (error) {
      this.error = error;
      this.#end("failed");
    }
  }

  async #cancel() {
    this.#move("cancelling");
    await this.#generator.return();
    this.#end("cancelled");
  }

  #ask(question) {
    this.#closeMessage();
    this.question = question;
    this.#move("awaiting");
  }

  #show(part) {
    if (this.#message === undefined) {
      this.#message = { role: `agent/${this.agent}`, parts: [], created_at: Date.now(), completed_at: undefined };
      this.#record("message.created", this.#message);
    }
    this.#message.parts.push(part);
    this.#record("message.part", part);
  }

  #closeMessage() {
    if (this.#message === undefined) return;
    this.#message.completed_at = Date.now();
    this.output.push(this.#message);
    this.#record("message.completed", this.#message);
    this.#message = undefined;
  }

  #end(status) {
    this.endedAt = Date.now();
    this.#generator = undefined;
    this.#move(status);
  }

  #move(status) {
    if (!transitions[this.status]?.includes(status))
      throw new Error(`A run cannot go from ${this.status} to ${status}.`);
    this.status = status;
    this.#record(`run.${status}`);
  }

  #record(type, data) {
    this.events.push({ id: this.events.length + 1, type, at: Date.now(), data });
    if (this.#watchers.length === 0) return;
    const watchers = this.#watchers;
    this.#watchers = [];
    for (const watcher of watchers) watcher();
  }

  #change() {
    return new Promise((resolve) => this.#watchers.push(resolve));
  }
}

export function openBareDuties() {
  const runs = new Map();
  const begin = (agent, text) => {
    const run = new Run(agent, [textMessage("user", text)]);
    runs.set(run.id, run);
    return run;
  };
  const result = async (run) => resultOf(await run.rest());
  return {
    echo: (text) => result(begin("echo", text)),
    later: (text) => result(begin("later", text)),
    stream: async (count, onPart) => {
      const run = begin("stream", String(count));
      for await (const { type, data } of run.read()) if (type === "message.part") onPart(data.content);
      return run;
    },
    ask: async (question) => {
      const run = await begin("asks", question).rest();
      if (run.status !== "awaiting" || textOf([run.question]) !== question) throw new Error("The run does not ask.");
      return run.id;
    },
    answer: (id, text) => {
      const run = runs.get(id);
      run.resume(textAnswer(text));
      return result(run);
    },
  };
}
