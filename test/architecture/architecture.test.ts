import { describe, expect, it } from "vitest";
import { acquaintanceIn } from "./acquaintance.ts";
import { checkArchitecture } from "./architecture.ts";
import { readSources } from "./sources.ts";

it("src keeps the import rules", () => {
  const files = readSources();

  expect(files.size).toBeGreaterThan(10);
  expect(checkArchitecture(files)).toEqual([]);
});

// On Node 20 each promise of the process looks at every storage that was ever used.
it("no object has an AsyncLocalStorage of its own", () => {
  const owns = /^\s*(?:(?:static|readonly|private) )*(?:this\.)?#?\w+ = new AsyncLocalStorage\b/m;
  const owners = [...readSources(), ...readSources("test")].filter(([, text]) => owns.test(text));

  expect(owns.test("class A {\n  readonly #user = new AsyncLocalStorage<string>();\n}")).toBe(true);
  expect(owners.map(([file]) => file)).toEqual([]);
});

describe("a small set of sources that keeps every rule", () => {
  it("passes", () => {
    expect(checkArchitecture(new Map(Object.entries(HOUSE)))).toEqual([]);
  });

  // Each row plants one violation and names the expected message.
  it.each<[file: string, text: string, said: string]>([
    // the arrows
    ["protocol/a.ts", `import type { C } from "../core/log.ts";`, "protocol/ may not import core/log.ts"],
    ["protocol/a.ts", `import { nanoid } from "nanoid";`, "not a package of protocol/"],
    ["core/a.ts", `import { z } from "zod";`, "not a package of core/"],
    ["core/a.ts", `import type { R } from "../runtime/agent/agent.ts";`, "core/ may not import runtime/agent/agent.ts"],
    ["core/a.ts", `import { S } from "../stores/memory/memory.ts";`, "core/ may not import stores/memory/memory.ts"],
    ["stores/a.ts", `import { R } from "../runtime/agent/agent.ts";`, "stores/ may not import runtime/agent/agent.ts"],
    ["stores/a.ts", `import type { H } from "../http/handler.ts";`, "stores/ may not import http/handler.ts"],
    ["runtime/log/a.ts", `import { H } from "../../http/handler.ts";`, "runtime/log/ may not import http/handler.ts"],
    ["runtime/log/a.ts", `import { O } from "../../stores/other.ts";`, "runtime/log/ may not import stores/other.ts"],
    ["runtime/log/a.ts", `import { z } from "zod";`, "not a package of runtime/log/"],
    [
      "runtime/agent/a.ts",
      `import { S } from "../log/system.ts";`,
      "runtime/agent/ may not import runtime/log/system.ts",
    ],
    [
      "runtime/log/a.ts",
      `import type { R } from "../runs/runs.ts";`,
      "runtime/log/ may not import runtime/runs/runs.ts",
    ],
    ["http/a.ts", `import { z } from "zod";`, "not a package of http/"],
    ["http/a.ts", `import { runs } from "../faces/acp/runs.ts";`, "http/ may not import faces/acp/runs.ts"],
    ["http/a.ts", `import { S } from "../stores/memory/memory.ts";`, "http/ may not import stores/memory/memory.ts"],
    [
      "faces/acp/a.ts",
      `import { S } from "../../stores/memory/memory.ts";`,
      "faces/acp/ may not import stores/memory/memory.ts",
    ],
    ["faces/acp/a.ts", `import { R } from "../../runtime/agent/agent.ts";`, "only its types"],
    ["http/a.ts", `import { R } from "../runtime/agent/agent.ts";`, "only its types"],
    ["http/a.ts", `import { evolve } from "../core/log.ts";`, "only its types"],
    ["http/a.ts", `import E from "eventemitter3";`, "not a package of http/"],
    ["testing/a.ts", `import { z } from "zod";`, "not a package of testing/"],
    ["elsewhere/a.ts", `import { z } from "zod";`, "no rule covers this file"],
    ["core/a.ts", `import { b } from "./missing.ts";`, "there is no such file"],
    ["core/a.ts", `import { C } from "./log.js";`, "there is no such file"],

    // every way to write an import
    ["core/a.ts", `import {\n  type R,\n  S,\n} from\n  "../runtime/agent/agent.ts";`, "core/ may not import"],
    ["core/a.ts", `import "../runtime/agent/agent.ts";`, "core/ may not import"],
    ["core/a.ts", `import * as r from "../runtime/agent/agent.ts";`, "core/ may not import"],
    ["core/a.ts", `export { R } from "../runtime/agent/agent.ts";`, "core/ may not import"],
    ["core/a.ts", `export type * from "../runtime/agent/agent.ts";`, "core/ may not import"],
    ["core/a.ts", `const r = () => import("../runtime/agent/agent.ts");`, "core/ may not import"],
    ["core/a.ts", `const r = (name: string) => import(name);`, "(computed)"],
    ["core/a.ts", `export type R = import("../runtime/agent/agent.ts").R;`, "core/ may not import"],
    ["core/a.ts", `import r = require("../runtime/agent/agent.ts");`, "core/ may not import"],
    ["http/a.ts", `export { R } from "../runtime/agent/agent.ts";`, "only its types"],

    // Node modules
    ["core/a.ts", `import { sep } from "node:path";`, "no Node modules here"],
    ["http/a.ts", `import type { Server } from "node:http";`, "no Node modules here"],
    ["stores/a.ts", `import { sep } from "node:path";`, "no Node modules here"],
    ["stores/a.ts", `import { S } from "./sqlite/sqlite.ts";`, "that file needs Node modules"],
    ["testing/a.ts", `import { sep } from "path";`, "not a package of testing/"],

    // entries
    ["index.ts", `export { sqlite } from "./stores/sqlite/sqlite.ts";`, "that file needs Node modules"],
    ["index.ts", `export const version = 1;`, "re-exports only"],
    ["http.ts", `import { h } from "./http/handler.ts";\nexport { h };`, "re-exports only"],
    ["http.ts", `export { R } from "./runtime/agent/agent.ts";`, "http.ts may not import runtime/agent/agent.ts"],
    ["store.ts", `export { C } from "./core/log.ts";`, "only its types"],
    ["store.ts", `export { drive } from "./testing/drive.ts";`, "that file needs Node modules"],
    [
      "stores/contract/store-contract.ts",
      `import { drive } from "../../testing/drive.ts";`,
      "that file needs Node modules",
    ],
    [
      "stores/contract/store-contract.ts",
      `import { h } from "../../http/handler.ts";`,
      "stores/contract/ may not import http/",
    ],
    ["other.ts", `export { C } from "./core/log.ts";`, "no rule covers this file"],

    // the two rooms
    ["runtime/log/a.ts", `import { D } from "../../durable/a.ts";`, "runtime/log/ may not import durable/a.ts"],
    ["runtime/log/a.ts", `import type { D } from "../../durable/a.ts";`, "runtime/log/ may not import durable/a.ts"],
    [
      "stores/memory/memory.ts",
      `import { D } from "../../durable/a.ts";`,
      "stores/memory/ may not import durable/a.ts",
    ],
    [
      "durable/a.ts",
      `import { m } from "../stores/memory/memory.ts";`,
      "durable/ may not import stores/memory/memory.ts",
    ],
    ["runtime/a.ts", "export const a = 1; // as long as the lease", "the plain room knows no lease"],
    ["runtime/a.ts", "export const raisedEpoch = 1;", "the plain room knows no epoch"],
    ["runtime/a.ts", "export const isReplaying = false;", "the plain room knows no replaying"],
    ["runtime/a.ts", "/** The owner. */\nexport const a = 1;", "the plain room knows no owner"],
    ["runtime/a.ts", "export const a = { history: [] };", "the plain room knows no history"],

    // the keys of runs
    ["runtime/a.ts", `export const a = (live: Map<string, 1>, run_id: string) => live.get(run_id);`, "use RunMap"],
    ["runtime/a.ts", `export const a = (live: Map<string, 1>, runId: string) => live.set(runId, 1);`, "use RunMap"],
    ["durable/a.ts", `export const a = (k: { run_id: string }, m: Set<string>) => m.has(k.run_id);`, "use RunMap"],
    ["durable/a.ts", `export const a = (k: { run_id: string }, m: Set<string>) => m.add(k.run_id);`, "use RunMap"],
    ["durable/a.ts", `export const a = (run_id: string, m: Set<string>) => m.add(\`\${run_id}/x\`);`, "use RunMap"],
    ["durable/a.ts", `export const a = (m: Map<string, 1>, l: L) => m.delete(l.log.key.run_id);`, "use RunMap"],
    ["runtime/a.ts", `export const a = (runs: R[]) => new Set(runs.map(({ run_id }) => run_id));`, "use RunMap"],
    ["runtime/a.ts", `export const a = (runs: R[]) => new Set(Array.from(runs, (r) => r.run_id));`, "use RunMap"],
    ["durable/a.ts", `export const a = (runs: R[]) => new Map(runs.map((r) => [r.run_id, r]));`, "use RunMap"],
    ["http/a.ts", `export const a = (m: Record<string, 1>, run_id: string) => m[run_id];`, "use RunMap"],

    // what clients say
    ["faces/acp/a.ts", "export const a = (s: Scope) => s.createRun({ input });", "use createRunFor or resumeFor"],
    ["faces/chat/a.ts", "export const a = (c: Caller) => c.scope.resume({ run_id });", "use createRunFor or resumeFor"],
    ["http/a.ts", "export const a = (r: Runtime) => r.createRun(request, {});", "use createRunFor or resumeFor"],

    // callbacks of the event loop
    ["runtime/a.ts", `export const a = (p: Promise<1>): void => void p;`, "drops void p: use inBackground"],
    ["runtime/a.ts", `export const a = (p: Promise<1>): void => {\n  void p.then(start);\n};`, "use inBackground"],
    [
      "durable/a.ts",
      `export const a = (p: Promise<1>): void => {\n  p.then(start, report);\n};`,
      "drops p.then(start, rep",
    ],
    ["http/a.ts", `export const a = (p: Promise<1>): void => {\n  p.catch(report);\n};`, "drops p.catch(report)"],
    ["stores/a.ts", `export const a = (p: Promise<1>): void => {\n  p.finally(end);\n};`, "drops p.finally(end)"],
    ["testing/a.ts", `export const a = (p: Promise<1>): void => void p;`, "drops void p"],
    ["runtime/a.ts", `class A { #w; a(p) { this.#w = p.then(b); } }`, "keeps this.#w = p.then(b): use endOf"],
    ["runtime/a.ts", `class A { #w; a(p) { this.#w ??= p?.then(b); } }`, "keeps this.#w ??= p?.then(b): use endOf"],
    ["runtime/a.ts", `signal.addEventListener("abort", stop);`, "use listen or onceAborted"],
    ["http/a.ts", `response.on("close", stop);`, `calls response.on("close", stop): use listen or onceAborted`],
    ["stores/a.ts", `client.once("end", lost);`, "use listen or onceAborted"],
    ["runtime/a.ts", `export const { signal } = new AbortController();`, "use newController"],
    ["faces/acp/a.ts", `export const { signal } = new AbortController();`, "use newController"],

    // the clock, random numbers, the process
    ["core/a.ts", `export const now = Date.now();`, "uses Date"],
    ["core/a.ts", `export const now = new Date();`, "uses Date"],
    ["core/a.ts", `export const clock = Date;`, "uses Date"],
    ["runtime/a.ts", `setTimeout(() => {}, 1);`, "uses setTimeout"],
    ["runtime/a.ts", `setInterval(() => {}, 1);`, "uses setInterval"],
    ["runtime/a.ts", `export const ports = { setImmediate };`, "uses setImmediate"],
    ["runtime/a.ts", `clearTimeout(timer);`, "uses clearTimeout"],
    ["http/a.ts", `export const id = crypto.randomUUID();`, "uses crypto"],
    ["http/a.ts", `export const id = globalThis.crypto.randomUUID();`, "uses globalThis.crypto"],
    ["http/a.ts", `export const id = globalThis["crypto"].randomUUID();`, "uses globalThis.crypto"],
    ["http/a.ts", `const { crypto: source } = globalThis;`, "uses globalThis.(anything)"],
    ["stores/a.ts", `export const now = performance.now();`, "uses performance"],
    ["runtime/a.ts", `export const dice = Math.random();`, "uses Math.random"],
    ["runtime/a.ts", `export const dice = Math["random"]();`, "uses Math.random"],
    ["runtime/a.ts", `const { random } = Math;`, "uses Math.random"],
    ["runtime/a.ts", `export const signal = AbortSignal.timeout(5);`, "uses AbortSignal.timeout"],
    ["testing/a.ts", `setTimeout(() => {}, 1);`, "uses setTimeout"],
    ["testing/a.ts", `export const dice = Math.random();`, "uses Math.random"],
    ["testing/chance.ts", `export const signal = AbortSignal.timeout(5);`, "uses AbortSignal.timeout"],
    ["runtime/a.ts", `export const environment = process.env;`, "uses process"],
    ["runtime/log/system.ts", `process.on("exit", () => {});`, "uses process"],
    ["runtime/log/system.ts", `console.log("here");`, "uses console"],
    ["runtime/log/system.ts", `globalThis.console.log("here");`, "uses globalThis.console"],

    // cycles, type-only ones included
    ["core/log.ts", `import type { L } from "./log.ts";`, "cycle: core/log.ts → core/log.ts"],
    ["core/state.ts", `import { C } from "./fold.ts";`, "cycle: core/state.ts → core/fold.ts → core/state.ts"],
    ["core/state.ts", `import type { C } from "./fold.ts";`, "cycle: core/state.ts → core/fold.ts → core/state.ts"],
  ])("with %s: %s", (file, text, said) => {
    const violations = checkArchitecture(new Map(Object.entries({ ...HOUSE, [file]: text })));

    expect(violations.join("\n")).toContain(said);
  });
});

describe("the objects of the two rooms know each other", () => {
  const known = acquaintanceIn(readSources(), ["runtime", "durable"]);

  // Where two files would need each other, the lower one says in an interface what it needs.
  it("by these interfaces alone, if one class satisfies them", () => {
    expect(known.interfaces).toEqual([
      "AgentRun: LiveRun",
      "DirtyLog: RunLog",
      "HeadFacts: Residency",
      "Journal: AgentJournal",
      "JournaledAgent: Execution",
      "LogRun: LiveRun",
      "Notices: an object of engine.ts",
      "Owner: an object of engine.ts",
      "ReaderRuns: Runs",
      "RemoteRuns: an object of engine.ts",
      "RestReader: RunReader",
      "SpendingRun: LiveRun",
    ]);
  });

  // An operation knows the execution that it belongs to.
  it("in these pairs alone, if each holds the other", () => {
    expect(known.pairs).toEqual([
      "AgentJournal, Execution",
      "Ask, Execution",
      "AskedQuestion, Execution",
      "Execution, IntendedWait",
      "Execution, LiveRun",
      "Execution, Receive",
      "Execution, RecordedOperation",
      "Execution, Sleep",
      "Execution, Wait",
      "Execution, YieldedQuestion",
      "LeasedHead, Residency",
      "LeasedResidence, LiveRun",
      "LiveRun, RunLog",
      "LiveRun, Runs",
      "LiveRun, Steps",
    ]);
  });
});

describe("of a lamp in a room", () => {
  it.each<[title: string, lamp: string, room: string, interfaces: readonly string[], pairs: readonly string[]]>([
    [
      "the interface and the pair are found",
      `export interface LampHost { onLit(): void }
       export class Lamp { readonly #host: LampHost; constructor(host: LampHost) { this.#host = host; } }`,
      `import type { LampHost } from "./lamp.ts";
       export class Room implements LampHost { readonly #lamp = new Lamp(this); onLit(): void {} }`,
      ["LampHost: Room"],
      ["Lamp, Room"],
    ],
    [
      "an object that speaks for the room is found",
      `export interface LampHost { onLit(): void }
       export class Lamp { readonly #host: LampHost; constructor(host: LampHost) { this.#host = host; } }`,
      "export class Room { readonly #lamp: Lamp = new Lamp({ onLit: () => this.#dim() }); #dim(): void {} }",
      ["LampHost: an object of Room"],
      ["Lamp, Room"],
    ],
    [
      "an interface with two implementers is left out, and the pair is not",
      `export interface LampHost { onLit(): void }
       export class Hall implements LampHost { onLit(): void {} }
       export class Lamp { readonly #host: LampHost; constructor(host: LampHost) { this.#host = host; } }`,
      `import type { LampHost } from "./lamp.ts";
       export class Room implements LampHost { readonly #lamps = new Set<Lamp>(); onLit(): void {} }`,
      [],
      ["Lamp, Room"],
    ],
    [
      "a function that calls back is neither",
      "export class Lamp { readonly #onLit: () => void; constructor(onLit: () => void) { this.#onLit = onLit; } }",
      "export class Room { readonly #lamp = new Lamp(() => this.#dim()); #dim(): void {} }",
      [],
      [],
    ],
    [
      "data is neither",
      `export interface Bulb { readonly watts: number }
       export class Lamp { readonly #bulb: Bulb; constructor(bulb: Bulb) { this.#bulb = bulb; } }`,
      "export class Room { readonly #watts = 5; readonly #lamp = new Lamp({ watts: this.#watts }); }",
      [],
      [],
    ],
  ])("%s", (_title, lamp, room, interfaces, pairs) => {
    const files = { "runtime/lamp.ts": lamp, "runtime/room.ts": `import { Lamp } from "./lamp.ts";\n${room}` };

    expect(acquaintanceIn(new Map(Object.entries(files)), ["runtime"])).toEqual({ interfaces, pairs });
  });
});

const HOUSE = {
  "protocol/message.ts": `import { z } from "zod";\nexport const message = z.string();`,
  "core/log.ts": `
    import type { message } from "../protocol/message.ts";
    export const at = (text: string, base: Date): number => (base instanceof Date ? Date.parse(text) : Date.UTC(0));
    export interface Timer { Date: Date; setTimeout(process: number): ReturnType<typeof setTimeout> }
    export const iso = (at: number): string => new Date(at).toISOString();
  `,
  "core/errors.ts": `export class CadenzaError extends Error { static process = 1; performance = 2; }`,
  "core/state.ts": `export const state = Math.max(1, 2);`,
  "core/fold.ts": `import { state } from "./state.ts";\nexport const signal = new AbortController().signal;`,
  "stores/memory/memory.ts": `import type { Timer } from "../../core/log.ts";`,
  "stores/other.ts": `import type { Timer } from "../core/log.ts";`,
  "stores/sqlite/sqlite.ts": `import { DatabaseSync } from "node:sqlite";\nimport { memory } from "../memory/memory.ts";`,
  "runtime/log/system.ts": `
    import { nanoid } from "nanoid";
    export const system = { now: () => Date.now(), setTimeout: globalThis.setTimeout, id: () => crypto.randomUUID() };
  `,
  "runtime/agent/agent.ts": `export const agent = 1;`,
  "runtime/runs/runs.ts": `
    import { EventEmitter } from "eventemitter3";
    import { memory } from "../../stores/memory/memory.ts";
    import { system } from "../log/system.ts";
    system.setTimeout(() => {}, 1);
    const { setTimeout: later } = system;
  `,
  "durable/a.ts": `import { system } from "../runtime/log/system.ts";\nexport const lease = system;`,
  "http/handler.ts": `
    import { CadenzaError } from "../core/errors.ts";
    import type { Timer } from "../core/log.ts";
    import type { Agent } from "../runtime/agent/agent.ts";
    export const secret = (agent: Agent): unknown => agent.crypto;
  `,
  "faces/acp/runs.ts": `import { z } from "zod";\nimport { secret } from "../../http/handler.ts";`,
  "testing/drive.ts": `import { ok } from "node:assert";\nimport { handler } from "../http/handler.ts";`,
  "stores/contract/store-contract.ts": `import { state } from "../../core/state.ts";`,
  "testing/kit.ts": `import { contract } from "../stores/contract/store-contract.ts";`,
  "store.ts": `
    export type { Timer } from "./core/log.ts";
    export { lease } from "./durable/a.ts";
  `,
  "index.ts": `export { Agent } from "./runtime/agent/agent.ts";\nexport type { Timer } from "./core/log.ts";`,
  "http.ts": `export { handler } from "./http/handler.ts";`,
  "testing.ts": `
    export { drive } from "./testing/drive.ts";
    export { contract } from "./stores/contract/store-contract.ts";
  `,
  "sqlite.ts": `export { SqliteStore } from "./stores/sqlite/sqlite.ts";`,
};
