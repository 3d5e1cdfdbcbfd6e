import type { Store } from "cadenza/store";
import { storeContract } from "cadenza/testing";
import { NOW } from "../../src/stores/contract/check.ts";
import { created, message, parts, runKey, sessionKey, waiting, write } from "../../src/stores/contract/samples.ts";
import type { Method } from "./store-proxy.ts";
import { isRead } from "./store-proxy.ts";

/** The part of the contract of stores that is about reads. */
export const contractOfReads = storeContract.filter(({ name }) =>
  /^(read|list|survey|tails|census|living|workers|backlog|lines|pauses|blocked|moved|sessions|tenants|counters)\b/.test(
    name,
  ),
);

/** The store, whose reads another instance answers. `close` closes both. */
export function readThrough<Opened extends Store & { close(): unknown }>(store: Opened, reader: Opened): Opened {
  return new Proxy(store, {
    get(target, name) {
      if (name === "close") return () => Promise.all([reader.close(), store.close()]);
      const from = isRead(String(name)) ? reader : target;
      const member: unknown = Reflect.get(from, name, from);
      return typeof member === "function" ? member.bind(from) : member;
    },
  });
}

/** Tries every write of a store. Gives the names and outcomes of those that were not refused because it only reads. */
export async function writesThatWereMade(store: Store): Promise<readonly string[]> {
  const key = runKey(1);
  const expected = { epoch: 1, position: 1 };
  const session = { history: [message("a")], state: {} };
  const agents = [{ agent_name: "echo", version: null }];
  const calls: Readonly<Partial<Record<Method, () => unknown>>> = {
    create: () => store.create(runKey(2), write([created(2)]), null),
    append: () => store.append(key, expected, write(parts("a"))),
    post: () => store.post(key, { entries: parts("a") }),
    claim: () => store.claim(key, expected, waiting()),
    changeVersion: () => store.changeVersion?.(key, expected, { type: "moved", at: NOW, version: "2" }),
    take: () => store.take({ owner: "me", agents, limit: 1 }),
    renew: () => store.renew("me", 1_000),
    release: () => store.release("me"),
    pause: () => store.pause({ agent_name: "echo" }, null),
    resume: () => store.resume({ agent_name: "echo" }),
    comeBack: () => store.comeBack(1),
    grantSteps: () => store.grantSteps("limit", { count: 1, perMs: 1 }, 1),
    permitSteps: () => store.permitSteps("me", "limit", 1, { turn: 1, used: 0, over: 0, wanted: 1 }),
    makeSession: () => store.makeSession(sessionKey(1), session, NOW),
    putSession: () => store.putSession(sessionKey(1), session, NOW),
    prune: () => store.prune({ maxRuns: 0, endedBefore: NOW, sessionsBefore: NOW }),
    delete: () => store.delete([key]),
    deleteSession: () => store.deleteSession(sessionKey(1)),
  };
  const made: string[] = [];
  for (const [name, call] of Object.entries(calls)) {
    const outcome = await Promise.resolve().then(call).then(JSON.stringify, String);
    if (!outcome.includes("opened with `readOnly`")) made.push(`${name}: ${outcome}`);
  }
  return made;
}
