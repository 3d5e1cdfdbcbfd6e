import { nanoid } from "nanoid";
import { inBackground } from "../../core/background.ts";
import type { Clock, Ids, Logger } from "../../core/ports.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import { writeUuid } from "../agent/uuid.ts";

/*
 * The only module that uses the machine's clock, timers and randomness. The timer functions are read when the module is
 * loaded, so that a test which fakes timers later does not stop the runtime.
 */
const startTimeout = setTimeout;
const stopTimeout = clearTimeout;
const startInterval = typeof setInterval === "function" ? setInterval : undefined;
const startImmediate = typeof setImmediate === "function" ? setImmediate : undefined;

/** The longest delay of `setTimeout`, in milliseconds. A longer one fires at once. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** After so many entries of a log other work has a turn: a store that answers at once would hold up all that is timed. */
export const TURN_ENTRIES = 1_024;

/** The machine's time. */
export const systemClock: Pick<Clock, "now"> = { now: () => Date.now() };

/** The machine's time and timers. What a callback throws goes to the logger. */
export function machineClock(logger: Logger): Clock & Required<Pick<Clock, "monotonic">> {
  return {
    now: systemClock.now,
    monotonic: () => performance.now(),
    setTimeout: (callback, delayMs) => startTimer(logger, callback, delayMs),
    turn: nextTurn,
    hold: holdProcess,
  };
}

/**
 * A clock of the host. What a callback throws goes to the logger. Where the clock itself fails, the machine's does its
 * work, so that no run fails or stands still for it.
 */
export function guardedClock(clock: Clock, logger: Logger): Clock {
  const machine = machineClock(logger);
  const failed = (method: keyof Clock, error: unknown): void =>
    logger.error("The clock failed. The machine's clock is used instead.", { method, error });
  const attempt = <T>(method: keyof Clock, ask: () => T, instead: () => T): T => {
    try {
      return ask();
    } catch (error) {
      failed(method, error);
      return instead();
    }
  };
  const turnOfMachine = (error: unknown): Promise<void> => {
    failed("turn", error);
    return machine.turn();
  };
  const guarded: Clock = {
    now: () => attempt("now", () => finite(clock.now()), machine.now),
    setTimeout(callback, delayMs) {
      // A clock may set the timer and fail all the same.
      let isDue = true;
      const once = (): void => {
        if (!isDue) return;
        isDue = false;
        inBackground(logger, callback);
      };
      const clear = attempt(
        "setTimeout",
        () => cancelling(clock.setTimeout(once, delayMs)),
        () => machine.setTimeout(once, delayMs),
      );
      return () => {
        isDue = false;
        inBackground(logger, clear);
      };
    },
    turn() {
      const turn = attempt("turn", () => clock.turn(), machine.turn);
      return isPromise(turn) ? turn.then(undefined, turnOfMachine) : turnOfMachine(turn);
    },
  };
  const monotonic = clock.monotonic && {
    monotonic: () => attempt("monotonic", () => finite(clock.monotonic?.() ?? clock.now()), guarded.now),
  };
  if (clock.hold === undefined) return { ...guarded, ...monotonic };
  return {
    ...guarded,
    ...monotonic,
    hold() {
      const release = attempt(
        "hold",
        () => clock.hold?.() ?? ignore,
        () => ignore,
      );
      return () => inBackground(logger, release);
    },
  };
}

function cancelling(clear: () => void): () => void {
  if (typeof clear === "function") return clear;
  throw new TypeError("setTimeout() gave no function that cancels the timer");
}

function finite(time: number): number {
  if (Number.isFinite(time)) return time;
  throw new TypeError(`now() gave ${String(time)}, which is no time`);
}

/** The number of holds on the process, and the timer that keeps it open while there are any. */
let holds = 0;
let isLettingGo = false;
let anchor: ReturnType<typeof setInterval> | undefined;

/** Random identifiers. */
export const systemIds: Ids = { uuid: randomUuid, token: () => nanoid() };

/** A random number from 0 up to, but not including, 1. */
export const systemChance = (): number => Math.random();

/** A logger that drops all messages. */
export const silentLogger: Logger = { debug: ignore, info: ignore, warn: ignore, error: ignore };

function startTimer(logger: Logger, callback: () => void, delayMs: number): () => void {
  let timer: ReturnType<typeof startTimeout>;
  const arm = (remainingMs: number): void => {
    const delay = Math.min(Math.max(remainingMs, 0), MAX_DELAY_MS);
    timer = startTimeout(() => {
      if (remainingMs > delay) arm(remainingMs - delay);
      else inBackground(logger, callback);
    }, delay);
    // In browsers timers are numbers, and there is no process to keep open.
    if (typeof timer === "object") timer.unref();
  };
  arm(delayMs);
  return () => stopTimeout(timer);
}

/** Keeps the process open until the returned function is called, once: by the clock, if it is one that can. */
export function holdOpen(clock: Clock): () => void {
  return clock.hold === undefined ? holdProcess() : clock.hold();
}

function holdProcess(): () => void {
  holds += 1;
  if (holds === 1) anchorProcess();
  return letProcessGo;
}

/** The timer holds the process for another turn, in which the next hold often begins: to change that takes longer than a hold. */
function letProcessGo(): void {
  holds -= 1;
  if (holds > 0 || isLettingGo) return;
  isLettingGo = true;
  afterTurn(() => {
    isLettingGo = false;
    if (holds === 0 && typeof anchor === "object") anchor.unref();
  });
}

/** The timer is created with the first hold and kept. Creating one for each hold takes ten times as long. */
function anchorProcess(): void {
  anchor ??= startInterval?.(ignore, MAX_DELAY_MS);
  if (typeof anchor === "object") anchor.ref();
}

/** Resolves after a turn of the event loop. */
export function nextTurn(): Promise<void> {
  return new Promise(afterTurn);
}

function afterTurn(callback: () => void): void {
  if (startImmediate === undefined) startTimeout(callback, 0);
  else startImmediate(callback);
}

/** A random text of 32 bytes, as base64url: a secret for a URL. */
export function randomSecret(): string {
  return urlSafe(base64(crypto.getRandomValues(new Uint8Array(32))));
}

/** The SHA-256 digest of a text, as base64. */
export async function digestOf(text: string): Promise<string> {
  return base64(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))));
}

/** The characters of base64 that URLs and cookies take. */
export function urlSafe(text: string): string {
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

const pool = new Uint8Array(4096);
let used = pool.length;

/**
 * A version 4 UUID. The string of `crypto.randomUUID` is a concatenation of small ones, and keeps 490 bytes alive as
 * long as the run. This string keeps 65.
 */
function randomUuid(): string {
  if (used === pool.length) {
    crypto.getRandomValues(pool);
    used = 0;
  }
  used += 16;
  return writeUuid(pool, used - 16, 4);
}
