import { nanoid } from "nanoid";
import type { Clock, Ids, Logger } from "../core/ports.ts";
import { ignore } from "../core/promises.ts";

/*
 * The one place that touches the machine's clock, its timers and its randomness. The functions are taken once, when the
 * module is loaded, so that a test which fakes timers later does not stop the runtime.
 */
const startTimeout = setTimeout;
const stopTimeout = clearTimeout;
const startInterval = typeof setInterval === "function" ? setInterval : undefined;
const startImmediate = typeof setImmediate === "function" ? setImmediate : undefined;

/** The longest delay that `setTimeout` knows; it takes a longer one for none. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** The machine's time. */
export const systemClock: Clock = {
  now: () => Date.now(),
  setTimeout: startTimer,
  turn: () => new Promise<void>(nextTurn),
  hold: holdProcess,
};

/** How many holds there are on the process, and the timer that holds it while there is one. */
let holds = 0;
let anchor: ReturnType<typeof setInterval> | undefined;

/** Random identifiers. */
export const systemIds: Ids = { uuid: randomUuid, token: () => nanoid() };

/** Says nothing. */
export const silentLogger: Logger = { debug: ignore, info: ignore, warn: ignore, error: ignore };

function startTimer(callback: () => void, delayMs: number): () => void {
  let timer: ReturnType<typeof startTimeout>;
  const arm = (remainingMs: number): void => {
    const delay = Math.min(Math.max(remainingMs, 0), MAX_DELAY_MS);
    timer = startTimeout(() => (remainingMs > delay ? arm(remainingMs - delay) : callback()), delay);
    // Where timers are numbers, as in browsers, there is no process to hold open.
    if (typeof timer === "object") timer.unref();
  };
  arm(delayMs);
  return () => stopTimeout(timer);
}

/** Keeps the process from ending until the answer is called. */
export function holdProcess(): () => void {
  holds += 1;
  if (holds === 1) anchorProcess();
  let isHeld = true;
  return () => {
    if (!isHeld) return;
    isHeld = false;
    holds -= 1;
    if (holds === 0 && typeof anchor === "object") anchor.unref();
  };
}

/** The timer is made with the first hold and kept: to make one for each hold takes ten times as long. */
function anchorProcess(): void {
  anchor ??= startInterval?.(ignore, MAX_DELAY_MS);
  if (typeof anchor === "object") anchor.ref();
}

function nextTurn(resolve: () => void): void {
  if (startImmediate === undefined) startTimeout(resolve, 0);
  else startImmediate(resolve);
}

/** Characters of every byte in hexadecimal, two for each. */
const hex = Array.from({ length: 512 }, (_, i) => ((i >> (i & 1 ? 1 : 5)) & 15).toString(16).charCodeAt(0));
const dash = "-".charCodeAt(0);
const pool = new Uint8Array(4096);
let used = pool.length;
const characters: number[] = new Array<number>(36).fill(dash);

/**
 * A version 4 UUID. `crypto.randomUUID` answers with a string made of many small ones, which holds 490 bytes for as long
 * as the run is kept; this one holds 65.
 */
function randomUuid(): string {
  if (used === pool.length) {
    crypto.getRandomValues(pool);
    used = 0;
  }
  let at = 0;
  for (let i = 0; i < 16; i++) {
    let byte = pool[used++] ?? 0;
    if (i === 6) byte = (byte & 15) | 64;
    else if (i === 8) byte = (byte & 63) | 128;
    if (i === 4 || i === 6 || i === 8 || i === 10) at += 1;
    characters[at++] = hex[2 * byte] ?? dash;
    characters[at++] = hex[2 * byte + 1] ?? dash;
  }
  return String.fromCharCode.apply(null, characters);
}
