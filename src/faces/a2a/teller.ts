import type { readError } from "../../http/errors.ts";
import type { DetailedEvent } from "../../runtime/log/event-stream.ts";
import type { Teller } from "../chat/item-format.ts";
import type { StreamItem } from "./objects.ts";
import type { TaskFold, TaskView } from "./task-fold.ts";

/** How a binding writes the items of a stream. */
export interface Envelope {
  item(item: StreamItem): object;
  /** The last item of a stream that breaks off. */
  failure(message: string, retryMs: number | undefined): object;
}

/** Where a stream of a task begins. */
export interface Begin extends TaskView {
  /** The number of the event after which the task is shown. */
  readonly known: number;
  /** The task waited there, and was answered then: it is shown when the run continues. */
  readonly isAnswered?: boolean;
}

/** Tells a run as the stream of a task: the task as it was at one event, and then exactly what follows. */
export class TaskTeller implements Teller {
  readonly #fold: TaskFold;
  readonly #begin: Begin;
  readonly #envelope: Envelope;
  #hasBegun = false;

  constructor(fold: TaskFold, begin: Begin, envelope: Envelope) {
    this.#fold = fold;
    this.#begin = begin;
    this.#envelope = envelope;
  }

  take(event: DetailedEvent): readonly object[] {
    const items = this.#fold.take(event);
    if (this.#hasBegun) return items.map(this.#envelope.item);
    const { known, isAnswered = false } = this.#begin;
    const number = event.type !== "error" && "id" in event ? event.id : 0;
    if (isAnswered ? number <= known || this.#fold.isAsking : number < known) return [];
    return [...this.#task(), ...(isAnswered ? items.map(this.#envelope.item) : [])];
  }

  end(): readonly object[] {
    return this.#hasBegun ? [] : this.#task();
  }

  fail({ message }: ReturnType<typeof readError>, retryMs: number | undefined): readonly object[] {
    return [this.#envelope.failure(message, retryMs)];
  }

  #task(): readonly object[] {
    this.#hasBegun = true;
    return [this.#envelope.item({ task: this.#fold.task(this.#begin) })];
  }
}
