import { inBackground } from "../core/background.ts";
import type { RunKey } from "../core/ports.ts";
import { ignore } from "../core/promises.ts";
import { waitFor } from "../core/time.ts";
import { checkKeys, checkObject } from "../runtime/agent/check.ts";
import { machineClock, silentLogger } from "../runtime/log/system.ts";
import type { Waker } from "./recovery/options.ts";

/** What a waker needs of a JetStream client, as `jetstream(connection)` of `@nats-io/jetstream` makes it. */
export interface NatsJetStream {
  publish(subject: string, payload: string): Promise<unknown>;
  jetstreamManager(): Promise<{
    readonly streams: {
      add(config: {
        name: string;
        subjects: string[];
        retention: "workqueue";
        max_msgs_per_subject: number;
      }): Promise<unknown>;
    };
    readonly consumers: {
      add(
        stream: string,
        config: { durable_name: string; ack_policy: "explicit"; ack_wait: number; max_ack_pending: number },
      ): Promise<unknown>;
    };
  }>;
  readonly consumers: { get(stream: string, consumer: string): Promise<NatsConsumer> };
}

/** A consumer of JetStream. */
export interface NatsConsumer {
  fetch(options: { max_messages: number; expires: number }): Promise<NatsMessages>;
}

/** Messages that are on their way. */
export interface NatsMessages extends AsyncIterable<NatsMessage> {
  stop(error?: Error): void;
}

/** A message that was delivered and waits for its acknowledgement. */
export interface NatsMessage {
  json<T>(): T;
  ack(): void;
  nak(delayMs?: number): void;
  working(): void;
}

/** Options of a waker on NATS. */
export interface NatsWakerOptions {
  /** The JetStream client. Its connection stays yours: close it after the runtime. */
  readonly jetstream: NatsJetStream;
  /** The name of the stream, which is made unless it exists, and the first part of its subjects. Default: `cadenza`. */
  readonly stream?: string | undefined;
}

const CONSUMER = "workers";
/** After so long without a sign from its worker, a wake-up is given to another one, in milliseconds. */
const HELD_MS = 6_000;
const SIGN_MS = 2_000;
/** How many wake-ups are requested at once, for how long, and when again after a failure or without room. */
const AT_ONCE = 8;
const REQUEST_MS = 2_000;
const PAUSE_MS = 250;

/**
 * A waker on NATS JetStream: a work-queue stream with one subject and at most one message for each run. A worker holds
 * the message while it works on the run. Throws `invalid_argument` for an unknown or invalid option.
 */
export function natsWaker(options: NatsWakerOptions): Waker {
  checkObject("options", options);
  checkKeys("options", options, ["jetstream", "stream"]);
  checkObject("options.jetstream", options.jetstream);
  const { jetstream, stream = "cadenza" } = options;
  const clock = machineClock(silentLogger);
  let making: Promise<void> | undefined;
  let isOn = false;
  let pulling: Promise<void> = Promise.resolve();
  let messages: NatsMessages | undefined;

  const make = async (): Promise<void> => {
    const manager = await jetstream.jetstreamManager();
    const subjects = [`${stream}.wake.*`];
    await manager.streams.add({ name: stream, subjects, retention: "workqueue", max_msgs_per_subject: 1 });
    // A message that waits for its time is one without acknowledgement, of which there may be any number.
    const times = { ack_wait: HELD_MS * 1_000_000, max_ack_pending: -1 };
    await manager.consumers.add(stream, { durable_name: CONSUMER, ack_policy: "explicit", ...times });
  };
  const made = (): Promise<void> => {
    making ??= make().catch((error: unknown) => {
      making = undefined;
      throw error;
    });
    return making;
  };

  const work = async (message: NatsMessage, look: (key: RunKey) => Promise<number | undefined>): Promise<void> => {
    let clear: () => void = ignore;
    const sign = (): void => {
      message.working();
      clear = clock.setTimeout(sign, SIGN_MS);
    };
    clear = clock.setTimeout(sign, SIGN_MS);
    const again = await look(message.json<RunKey>()).finally(() => clear());
    if (again === undefined) message.ack();
    else message.nak(Math.max(0, again - clock.now()));
  };

  const pull = async (consumer: NatsConsumer, look: Parameters<Waker["start"]>[0], capacity: () => number) => {
    while (isOn) {
      const max_messages = Math.min(AT_ONCE, capacity());
      try {
        if (max_messages > 0) {
          messages = await consumer.fetch({ max_messages, expires: REQUEST_MS });
          // A message that cannot be read or acknowledged is given to a worker again.
          for await (const message of messages) inBackground(silentLogger, work(message, look));
          continue;
        }
      } catch {
        // The connection is restored by its client. Meanwhile the scans of the runtime find the runs.
      }
      await waitFor(clock, PAUSE_MS);
    }
  };

  return {
    async wake({ tenant, run_id }) {
      await made();
      // A subject has no dots and stars of its own.
      const run = encodeURIComponent(JSON.stringify([tenant, run_id])).replace(/[.*]/g, "%");
      await jetstream.publish(`${stream}.wake.${run}`, JSON.stringify({ tenant, run_id }));
    },
    async start(look, capacity) {
      await made();
      const consumer = await jetstream.consumers.get(stream, CONSUMER);
      isOn = true;
      pulling = pull(consumer, look, capacity);
    },
    async stop() {
      isOn = false;
      messages?.stop();
      await pulling;
    },
  };
}
