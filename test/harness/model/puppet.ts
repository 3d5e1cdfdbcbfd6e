import type { AgentContext, AwaitResume, StandardSchema } from "cadenza";
import { AgentError, awaitMessage } from "cadenza";

/** An order to a puppet. */
export type Order =
  | { readonly does: "emit"; readonly value: unknown; readonly serial: number; readonly emits: boolean }
  | { readonly does: "close" }
  | { readonly does: "ask"; readonly options: AskOrder }
  | { readonly does: "await"; readonly options: AskOrder }
  | { readonly does: "wait for answers" }
  | { readonly does: "run a sub-run" }
  | { readonly does: "set state"; readonly value: number }
  | { readonly does: "read history" }
  | { readonly does: "return"; readonly value: unknown }
  | { readonly does: "throw"; readonly error: unknown };

export interface AskOrder {
  readonly timeoutMs?: number;
  readonly default?: { readonly n: number };
  readonly schema?: StandardSchema<{ readonly n: number }>;
}

/** The outcome of an operation that a puppet awaited. */
export interface Heard {
  readonly key: string;
  outcome: { readonly answer: unknown } | { readonly error: unknown } | undefined;
}

/** How a puppet behaves when its run is stopped. */
export interface Manners {
  /** Stops what it does as soon as its signal aborts. A puppet that does not goes on with its orders. */
  readonly obeys: boolean;
  /** Emits something in its `finally` block. */
  readonly saysGoodbye: boolean;
  /** Waits for one more order in its `finally` block. */
  readonly lingers: boolean;
}

/** The agent of one run, which the model controls. */
export class Puppet {
  readonly agent_name: string;
  readonly context: AgentContext;
  readonly manners: Manners;
  readonly heard: Heard[] = [];
  readonly histories: (readonly unknown[])[] = [];
  /** The serial numbers of what it has emitted. */
  readonly emitted: number[] = [];
  /** Whether its `finally` block began. */
  unwound = false;
  /** Whether its function has returned or thrown. */
  finished = false;
  readonly #orders: Order[] = [];
  #pull: { readonly resolve: (order: Order) => void; readonly reject: (error: unknown) => void } | undefined;
  #asked = 0;
  #awaited = 0;
  #ran = 0;
  readonly #open = new Set<Promise<unknown>>();

  constructor(agentName: string, context: AgentContext, manners: Manners) {
    this.agent_name = agentName;
    this.context = context;
    this.manners = manners;
    if (!manners.obeys) return;
    context.signal.addEventListener("abort", () => this.#pull?.reject(context.signal.reason), { once: true });
  }

  get run_id(): string {
    return this.context.run_id;
  }

  /** Whether it waits for an order. */
  get isIdle(): boolean {
    return this.#pull !== undefined;
  }

  /** Gives it an order. An order that it cannot carry out yet waits. */
  order(order: Order): void {
    const pull = this.#pull;
    this.#pull = undefined;
    if (pull === undefined) this.#orders.push(order);
    else pull.resolve(order);
  }

  next(): Promise<Order> {
    const order = this.#orders.shift();
    if (order !== undefined) return Promise.resolve(order);
    if (this.manners.obeys && this.context.signal.aborted) return Promise.reject(this.context.signal.reason);
    return new Promise((resolve, reject) => {
      this.#pull = { resolve, reject };
    });
  }

  ask(options: AskOrder): void {
    const { schema, ...rest } = options;
    const { ask } = this.context;
    this.#listen(`ask#${++this.#asked}`, schema === undefined ? ask("Well?", rest) : ask("Well?", { ...rest, schema }));
  }

  /** The request that a generator yields to ask. */
  awaits(options: AskOrder): { readonly request: unknown; readonly heard: (answer: AwaitResume | undefined) => void } {
    const heard: Heard = { key: `await#${++this.#awaited}`, outcome: undefined };
    this.heard.push(heard);
    const { schema, ...rest } = options;
    return {
      request: awaitMessage("Well?", rest),
      heard: (answer) => {
        heard.outcome = { answer };
      },
    };
  }

  runChild(agentName: string): void {
    this.#listen(`run:${agentName}#${++this.#ran}`, this.context.run(agentName, "go"));
  }

  async waitForAnswers(): Promise<void> {
    await Promise.allSettled(this.#open);
  }

  async readHistory(): Promise<void> {
    this.histories.push(await this.context.session.history());
  }

  #listen(key: string, promise: Promise<unknown>): void {
    const heard: Heard = { key, outcome: undefined };
    this.heard.push(heard);
    const settled = promise.then(
      (answer) => {
        heard.outcome = { answer };
      },
      (error: unknown) => {
        heard.outcome = { error };
      },
    );
    this.#open.add(settled);
    void settled.then(() => this.#open.delete(settled));
  }
}

/** The agent function of a puppet, as an async generator. */
export async function* playAsGenerator(puppet: Puppet): AsyncGenerator<unknown, unknown, AwaitResume | undefined> {
  try {
    for (;;) {
      const order = await puppet.next();
      if (order.does === "return") return order.value;
      if (order.does === "emit" && !order.emits) {
        puppet.emitted.push(order.serial);
        yield order.value;
      } else if (order.does === "await") {
        const { request, heard } = puppet.awaits(order.options);
        heard(yield request);
      } else await carryOut(puppet, order);
    }
  } finally {
    puppet.unwound = true;
    try {
      if (puppet.manners.saysGoodbye) yield "Goodbye.";
      if (puppet.manners.lingers) await puppet.next();
    } finally {
      puppet.finished = true;
    }
  }
}

/** The agent function of a puppet, as an async function. */
export async function playAsFunction(puppet: Puppet): Promise<unknown> {
  try {
    for (;;) {
      const order = await puppet.next();
      if (order.does === "return") return order.value;
      if (order.does === "await") puppet.ask(order.options);
      else await carryOut(puppet, order);
    }
  } finally {
    puppet.unwound = true;
    try {
      if (puppet.manners.saysGoodbye) await puppet.context.emit("Goodbye.");
      if (puppet.manners.lingers) await puppet.next();
    } finally {
      puppet.finished = true;
    }
  }
}

/** The errors that puppets throw. */
export const puppetErrors: readonly unknown[] = [
  new Error("The puppet failed."),
  new AgentError("out_of_strings", "The puppet has no strings.", { strings: 0 }),
  "not an error",
  undefined,
];

async function carryOut(puppet: Puppet, order: Order): Promise<void> {
  switch (order.does) {
    case "emit":
      await puppet.context.emit(order.value);
      puppet.emitted.push(order.serial);
      return;
    case "close":
      return puppet.context.emit(null);
    case "ask":
      puppet.ask(order.options);
      return;
    case "wait for answers":
      return puppet.waitForAnswers();
    case "run a sub-run":
      puppet.runChild("child");
      return;
    case "set state":
      return puppet.context.session.setState(order.value);
    case "read history":
      return puppet.readHistory();
    case "throw":
      throw order.error;
    default:
      return;
  }
}
