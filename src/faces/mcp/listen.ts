import { inBackground } from "../../core/background.ts";
import type { Logger } from "../../core/ports.ts";
import { notCounted } from "../../http/disconnects.ts";
import { streamHeaders, textOptions } from "../../http/event-stream.ts";
import type { EventSource } from "../../http/event-text.ts";
import { EventText } from "../../http/event-text.ts";
import { RpcText } from "../../http/rpc-text.ts";
import type { WireResponse } from "../../http/wire.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import type { DetailedEvent, EventStream } from "../../runtime/log/event-stream.ts";
import type { RpcCall } from "./options.ts";
import { objectIn } from "./peer.ts";
import { resultFor, unfit } from "./responses.ts";
import { admitTask, taskNow } from "./tasks.ts";

/** How many tasks one subscription may name. */
const MAX_TASKS = 100;

/** `subscriptions/listen`: tells of each state of the tasks that the request names, until they have ended. */
export async function listen(given: RpcCall): Promise<WireResponse> {
  const { taskIds } = objectIn(given.message.params, "notifications");
  const asked = taskIds ?? [];
  if (!Array.isArray(asked) || asked.length > MAX_TASKS)
    throw unfit(`notifications.taskIds: expected a list of at most ${MAX_TASKS} ids of tasks.`);
  const tasks: WatchedTask[] = [];
  for (const id of new Set<JsonValue>(asked)) {
    const { call, run_id } = await admitTask(given, "read", id);
    const { last_event_id } = await call.caller.scope.details(run_id);
    tasks.push({ call, run_id, after: last_event_id, told: "" });
  }
  const { service, caller } = given;
  const reader = service.readers.enter(caller.tenant);
  const source = new TaskSource(service.logger, tasks);
  const text = new SubscriptionText(given, tasks);
  const body = new EventText(source, text, textOptions(service, reader, "", notCounted));
  return { status: 200, headers: streamHeaders, body };
}

/** A task whose states a client gets. */
interface WatchedTask {
  readonly call: RpcCall;
  readonly run_id: string;
  /** The number of the last event that its first state shows. */
  readonly after: number;
  /** The state that the client got last, as a text. */
  told: string;
}

/** The states of tasks, each as a generic event. A state that is over before it is read is left out. */
class TaskSource implements EventSource {
  readonly #logger: Logger;
  /** The tasks of which something has not been told. */
  readonly #changed: Set<WatchedTask>;
  readonly #streams = new Set<EventStream>();
  /** Whether there is nothing more to tell. A subscription to nothing stays open. */
  #isOver = false;
  #failed: { readonly error: unknown } | undefined;
  #wake: (() => void) | undefined;

  constructor(logger: Logger, tasks: readonly WatchedTask[]) {
    this.#logger = logger;
    this.#changed = new Set(tasks);
    for (const task of tasks) {
      const { call, run_id, after } = task;
      const events = call.caller.scope.events(run_id, { after, until: "end", detail: true }) as EventStream;
      this.#streams.add(events);
      inBackground(logger, this.#watch(task, events));
    }
  }

  async #watch(task: WatchedTask, events: EventStream): Promise<void> {
    try {
      for await (const { type } of events) {
        if (!changing.test(type)) continue;
        this.#changed.add(task);
        this.#wake?.();
      }
    } catch (error) {
      this.#failed ??= { error };
    }
    this.#streams.delete(events);
    this.#isOver ||= this.#streams.size === 0;
    this.#wake?.();
  }

  async poll(): Promise<IteratorResult<DetailedEvent, undefined>> {
    for (;;) {
      for (const task of this.#changed) {
        this.#changed.delete(task);
        const generic = await taskNow(task.call, task.run_id);
        const text = JSON.stringify({ ...generic, lastUpdatedAt: "" });
        if (task.told === text) continue;
        task.told = text;
        return { done: false, value: { type: "generic", generic, id: 0 } };
      }
      if (this.#failed !== undefined) throw this.#failed.error;
      if (this.#isOver) return { done: true, value: undefined };
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  return(): void {
    this.#isOver = true;
    for (const events of this.#streams) inBackground(this.#logger, events.return());
    this.#wake?.();
  }
}

const changing = /^(run|question)\./;

/** Writes the states of tasks as notifications, and at their end the response to the subscription. */
class SubscriptionText extends RpcText {
  readonly begin: string;
  readonly #result: JsonObject;

  constructor(call: RpcCall, tasks: readonly WatchedTask[]) {
    super(call.service.settings.frame, call.message);
    this.#result = resultFor(call, {});
    const notifications = tasks.length > 0 ? { taskIds: tasks.map(({ run_id }) => run_id) } : {};
    this.begin = this.text(this.#notification("subscriptions/acknowledged", { notifications }));
  }

  write(event: DetailedEvent, out: EventText): void {
    if (event.type === "generic") this.put(out, this.#notification("tasks", event.generic));
  }

  end(): string {
    return this.respond({ result: this.#ofSubscription(this.#result) });
  }

  #notification(name: string, params: JsonObject): JsonObject {
    return { method: `notifications/${name}`, params: this.#ofSubscription(params) };
  }

  #ofSubscription(content: JsonObject): JsonObject {
    const meta = { ...(content["_meta"] as JsonObject), "io.modelcontextprotocol/subscriptionId": this.request.id };
    return { ...content, _meta: meta };
  }
}
