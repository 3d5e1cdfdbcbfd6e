import type { Command } from "../../core/commands.ts";
import { decide, isRefusal } from "../../core/decide.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { ReceivedEntry } from "../../core/log.ts";
import type { RunKey, Store } from "../../core/ports.ts";
import { generationLength, waitingMessages } from "../../core/state.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { RunStatus } from "../../protocol/run.ts";
import { checkMessage } from "../agent/agent-schemas.ts";
import { foldAll } from "../log/fold-log.ts";
import { checkLogLength, checkWaiting, messageBytes } from "../log/part-size.ts";
import { closedError, lostError, refusalError } from "../log/refusals.ts";
import type { LiveRun } from "./live-run.ts";
import type { KeyGiver } from "./remote-runs.ts";
import { unlessLost } from "./remote-runs.ts";
import type { OutgoingMessage } from "./requests.ts";
import type { Runs } from "./runs.ts";

/** The runs that can still receive messages. */
const receiving: readonly RunStatus[] = ["created", "in-progress", "awaiting"];

/** Delivers messages to runs. A run that is not loaded in this process is not loaded for it. */
export class MessageRouter {
  readonly #runs: Runs;

  constructor(runs: Runs) {
    this.#runs = runs;
  }

  /** Resolves when the store has the message. `repeated`: it had it before. `onlyOf`: only runs that this user has created. */
  async send(
    tenant: string,
    { to, ...message }: OutgoingMessage,
    onlyOf: string | undefined,
  ): Promise<{ readonly run_id: string; readonly repeated?: true }> {
    // A message without a key of its own is sent again too, if the run leaves this process meanwhile.
    const keyBy = message.idempotency_key === undefined ? "runtime" : "sender";
    const idempotency_key = message.idempotency_key ?? this.#runs.ids.uuid();
    if (this.#runs.shared.isClosed) throw closedError();
    const bytes = messageBytes(message.data, this.#runs.shared.settings.maxPartBytes);
    const key = typeof to === "string" ? { tenant, run_id: to } : await this.#find(tenant, to, onlyOf);
    this.#runs.shared.hold();
    try {
      if (this.#runs.registry.declaresMessages) await this.#check(key, message.name, message.data);
      const isNew = await unlessLost(() => this.#deliver(key, { ...message, idempotency_key, bytes }, keyBy));
      return isNew ? { run_id: key.run_id } : { run_id: key.run_id, repeated: true };
    } finally {
      this.#runs.shared.letGo();
    }
  }

  /** The agent that executes the run says which messages it receives, if it is registered here. */
  async #check(key: RunKey, name: string, data: JsonValue): Promise<void> {
    const { registry, shared } = this.#runs;
    const { store } = shared;
    const live = this.#runs.find(key);
    const created = live === undefined ? (await store.find(key))?.created : undefined;
    const agent = live?.agent ?? (created && registry.known(created.agent_name, created.version));
    if (agent !== undefined) await checkMessage(agent, name, data, shared);
  }

  /** Resolves with whether the run did not have the message before. */
  async #deliver(key: RunKey, message: Omit<ReceivedEntry, "type" | "at">, keyBy: KeyGiver): Promise<boolean> {
    const ready = this.#runs.shared.clock.ready();
    if (ready !== undefined) await ready;
    const entry: ReceivedEntry = { type: "received", at: this.#runs.shared.clock.now(), ...message };
    const live = this.#runs.find(key);
    if (live !== undefined) return this.#giveTo(live, entry);
    const { remote, shared } = this.#runs;
    if (remote !== undefined) return remote.post(key, { type: "message", entry, keyBy });
    // Only a run that has ended is not loaded here.
    await refuseLate(shared.store, key, entry);
    return false;
  }

  async #giveTo(run: LiveRun, entry: ReceivedEntry): Promise<boolean> {
    const { log, residence } = run;
    const { settings } = this.#runs.shared;
    // What was sent before elsewhere comes before it.
    await residence?.sync("unless writing");
    const command: Command = { type: "receive", entry };
    for (let isNew = false; ; ) {
      const { state } = log;
      const decision = decide(state, command);
      // A message that has arrived already, or that the run does not take, needs no room.
      if (!isRefusal(decision) && decision.length > 0) {
        checkLogLength(generationLength(state), settings.maxLogEntries);
        checkWaiting(state.run_id, waitingMessages(state), entry.bytes ?? 0, settings);
        isNew = true;
      }
      run.holdIfPaused();
      log.decide(command);
      // A refusal reveals the state, so the state is committed first.
      await log.acknowledge();
      if (log.lost) throw lostError(log.key.run_id);
      // Another process may have written first. What was decided here was decided again on that.
      const after = decide(log.state, command);
      if (isRefusal(after)) {
        if (after.refused === "idempotency_conflict") throw refusalError(after, log.key.run_id);
        // It may lie in the inbox of the run.
        await refuseLate(this.#runs.shared.store, log.key, entry);
        return false;
      }
      // The message has arrived.
      if (after.length === 0) return isNew;
    }
  }

  async #find(
    tenant: string,
    { labels, agent_name }: Exclude<OutgoingMessage["to"], string>,
    creator: string | undefined,
  ): Promise<RunKey> {
    await this.#runs.settled(tenant);
    const { store, settings } = this.#runs.shared;
    const query = { tenant, creator, labels, agent_name, limit: 2, offset: 0, most: settings.maxExaminedRuns };
    const found = await store.list({ ...query, statuses: receiving });
    const [first, second] = found;
    const which = JSON.stringify(labels);
    if (first === undefined) {
      const [cancelling] = await store.list({ ...query, statuses: ["cancelling"] });
      // It refuses the message.
      if (cancelling !== undefined) return cancelling.key;
      throw new CadenzaError("run_not_found", `No run that has not ended has the labels ${which}.`);
    }
    if (second === undefined) return first.key;
    const message = `Several runs that have not ended have the labels ${which}: ${first.key.run_id} and ${second.key.run_id}, for example. Send to a run's id, or give each run labels of its own.`;
    throw new CadenzaError("ambiguous", message);
  }
}

/**
 * Refuses a message to a run that has ended or is being cancelled. A message that has arrived before under the same
 * idempotency key is not refused. Throws `run_not_found`, `run_finished`, `run_cancelling` or `idempotency_conflict`.
 */
export async function refuseLate(store: Store, key: RunKey, entry: ReceivedEntry): Promise<void> {
  const { state } = await foldAll(store, key);
  const decision = decide(state, { type: "receive", entry });
  if (isRefusal(decision)) throw refusalError(decision, key.run_id);
  if (decision.length > 0) throw lostError(key.run_id);
}
