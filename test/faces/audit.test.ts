import * as six from "ai";
import type { AuditRecord, Run } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { createInspectorHandler } from "cadenza/inspector";
import { describe, expect, it } from "vitest";
import { Visitor as Operator } from "../inspector/visitor.ts";
import { acpClient } from "./acp-visitor.ts";
import { agUiHost } from "./ag-ui-visitor.ts";
import type { ChatModule } from "./chat-visitor.ts";
import { chatPage } from "./chat-visitor.ts";
import { Desk } from "./desk.ts";
import type { Visitor } from "./visitor.ts";

/* Who did it, by which door: what `onAudit`, the log and the details say. */

const ada = { name: "Ada" };
const tenant = "blue";

/** What a user, or an operator, can do by a door. A door that has no such thing leaves it out. */
interface Door {
  /** Creates a run that asks. */
  create(): Promise<void>;
  answer(): Promise<void>;
  decline(): Promise<void>;
  cancel(): Promise<void>;
  send?(): Promise<void>;
  fork?(): Promise<void>;
  delete?(): Promise<void>;
}

type Act = keyof Door;

const acts: readonly Act[] = ["create", "answer", "decline", "cancel", "send", "fork", "delete"];

/** The user of a protocol. */
function face(visit: (desk: Desk) => Visitor) {
  return (desk: Desk): Door => {
    const visitor = visit(desk);
    return {
      create: () => visitor.say("ask"),
      answer: () => visitor.answer({ approved: true }),
      decline: () => visitor.decline("No."),
      cancel: () => visitor.stop(),
    };
  };
}

const newest = async (desk: Desk): Promise<string> =>
  (await desk.runtime.scope({ tenant }).listRuns({ limit: 1 }))[0]?.run_id ?? "";

const doors: Readonly<Record<string, (desk: Desk) => Door>> = {
  "this process": (desk) => {
    const scope = desk.runtime.scope({ tenant, principal: ada });
    const resume = async (reply: object): Promise<void> =>
      void (await scope.resume({ run_id: await newest(desk), ...reply, mode: "async" }));
    return {
      create: async () => void (await scope.createRun({ agent_name: "desk", input: "ask" })),
      answer: () => resume({ await_resume: { approved: true } }),
      decline: () => resume({ decline: { reason: "No." } }),
      cancel: async () => void (await scope.cancel(await newest(desk))),
      send: async () => void (await scope.send({ to: await newest(desk), name: "news", data: 1 })),
      fork: async () => void (await scope.fork(await newest(desk), { mode: "async" })),
      delete: async () => scope.delete(await newest(desk)),
    };
  },
  ACP: face((desk) => acpClient.visit(desk, "chat")),
  "a page of the AI SDK": face((desk) => chatPage("6", six as ChatModule).visit(desk, "chat")),
  "AG-UI": face((desk) => agUiHost.visit(desk, "chat")),
  "the inspector": (desk) => {
    const handler = createInspectorHandler(desk.runtime, { authorize: () => ({ tenant, principal: ada }) });
    const operator = new Operator(handler);
    const act = async (name: string, body: object = {}): Promise<void> => {
      await operator.act(name, { run_id: await newest(desk), ...body });
      await desk.clock.settle();
    };
    return {
      create: async () => {
        await operator.act("create", { agent_name: "desk", input: "ask" });
        await desk.clock.settle();
      },
      answer: () => act("answer", { await_id: "ask#1", answer: { approved: true } }),
      decline: () => act("decline", { await_id: "ask#1" }),
      cancel: () => act("cancel"),
      send: () => act("send", { name: "news", data: 1 }),
      fork: () => act("fork"),
      delete: () => act("delete"),
    };
  },
  "createAdmin, beside a user": (desk) => {
    const user = doors["this process"]?.(desk) as Door;
    const admin = createAdmin(desk.runtime, { principal: ada });
    const key = async () => ({ tenant, run_id: await newest(desk) });
    const { create, answer, decline } = user;
    return {
      ...{ create, answer, decline },
      cancel: async () => void (await admin.cancel(await key())),
      fork: async () => void (await admin.fork(await key(), { mode: "async" })),
      delete: async () => admin.delete(await key()),
    };
  },
};

/** What comes before an act, so that there is something to do it to. */
const before: Readonly<Record<Act, readonly Act[]>> = {
  create: [],
  answer: ["create"],
  decline: ["create"],
  cancel: ["create"],
  send: ["create"],
  fork: ["create", "answer"],
  delete: ["create", "cancel"],
};

/** The entry that says who did it. Of a new run it is the first one. */
const entryOf: Partial<Readonly<Record<Act, string>>> = {
  answer: "resumed",
  decline: "declined",
  cancel: "cancel-requested",
  send: "received",
};

async function open(door: (desk: Desk) => Door) {
  const records: AuditRecord[] = [];
  const desk = new Desk(
    { onAudit: (record) => void records.push(record) },
    { authorize: () => ({ tenant, principal: ada }) },
  );
  return { desk, records, user: door(desk) };
}

describe.each(Object.entries(doors))("by %s", (_name, door) => {
  it.each(acts)("%s", async (act) => {
    const { desk, records, user } = await open(door);
    if (user[act] === undefined) return;
    for (const other of before[act]) await user[other]?.();
    await desk.clock.settle();
    const run = (await desk.runtime.scope({ tenant }).listRuns({ limit: 1 }))[0];
    const run_id = run?.run_id;
    records.length = 0;
    await user[act]?.();
    await desk.clock.settle();
    const [record, ...others] = records;
    expect(others).toEqual([]);
    const created = (await desk.runtime.scope({ tenant }).listRuns({ limit: 1 }))[0] as Run;
    expect(record).toEqual({
      ...{ action: act, outcome: "done", by: ada, tenant, at: expect.stringMatching(/^\d{4}-.*Z$/) },
      run_id: act === "create" ? created.run_id : run_id,
      ...(act === "send" ? { message_name: "news" } : { agent_name: "desk" }),
      ...(act !== "send" && { session_id: (run ?? created).session_id }),
      ...((act === "answer" || act === "decline") && { await_id: "ask#1" }),
      ...(act === "fork" && { fork_run_id: created.run_id }),
    });
    if (act === "delete") return;
    const key = { tenant, run_id: act === "fork" || act === "create" ? created.run_id : (run_id ?? "") };
    const { items } = await createAdmin(desk.runtime).log(key);
    const said = items.flatMap((entry) => {
      if (entry.type === "created")
        return act === "create" ? [entry.principal] : act === "fork" ? [entry.origin?.by] : [];
      return entry.type === entryOf[act] && "by" in entry ? [entry.by] : [];
    });
    expect(said).toEqual([ada]);
    const details = await desk.runtime.scope({ tenant }).details(key.run_id);
    expect(details.cancelled_by).toEqual(act === "cancel" ? ada : null);
    expect(details.origin?.by).toEqual(act === "fork" ? ada : undefined);
  });
});
