import { CadenzaError } from "../core/errors.ts";
import { messageOf } from "../core/failure.ts";
import type { Store } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";

/**
 * Wraps a store, so that its failures have the code `store_failed`, with the thrown value as the cause. Failures of
 * `create` and `append` are not wrapped, because the writer of a run adds the run's id.
 */
export function namingFailures(store: Store): Store {
  return {
    persistent: store.persistent,
    create: (key, write, idempotencyKey) => store.create(key, write, idempotencyKey),
    append: (key, expected, write) => store.append(key, expected, write),
    post: (...parameters) => named(() => store.post(...parameters)),
    claim: (...parameters) => named(() => store.claim(...parameters)),
    take: (request) => named(() => store.take(request)),
    renew: (...parameters) => named(() => store.renew(...parameters)),
    release: (name) => named(() => store.release(name)),
    find: (key) => named(() => store.find(key)),
    read: (...parameters) => named(() => store.read(...parameters)),
    findByIdempotencyKey: (...parameters) => named(() => store.findByIdempotencyKey(...parameters)),
    list: (query) => named(() => store.list(query)),
    moved: (known) => named(() => store.moved(known)),
    owned: (...parameters) => named(() => store.owned(...parameters)),
    blocked: (query) => named(() => store.blocked(query)),
    backlog: () => named(() => store.backlog()),
    survey: (query) => named(() => store.survey(query)),
    tails: (...parameters) => named(() => store.tails(...parameters)),
    census: () => named(() => store.census()),
    workers: () => named(() => store.workers()),
    session: (key) => named(() => store.session(key)),
    sessionLength: (key) => named(() => store.sessionLength(key)),
    makeSession: (...parameters) => named(() => store.makeSession(...parameters)),
    putSession: (...parameters) => named(() => store.putSession(...parameters)),
    counters: (agentName) => named(() => store.counters(agentName)),
    prune: (retention) => named(() => store.prune(retention)),
    delete: (runs) => named(() => store.delete(runs)),
    deleteSession: (key) => named(() => store.deleteSession(key)),
    ...(store.watch !== undefined && { watch: store.watch.bind(store) }),
    close: () => store.close(),
  };
}

function named<T>(call: () => MaybePromise<T>): MaybePromise<T> {
  try {
    const answer = call();
    return isPromise(answer) ? answer.catch(rethrow) : answer;
  } catch (error) {
    return rethrow(error);
  }
}

function rethrow(error: unknown): never {
  if (CadenzaError.is(error)) throw error;
  throw new CadenzaError("store_failed", `The store failed: ${messageOf(error)}`, { cause: error });
}
