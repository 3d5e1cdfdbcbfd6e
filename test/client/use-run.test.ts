import { AgentRuntime, MemoryStore } from "cadenza";
import type { ClientRun } from "cadenza/client";
import { createClient } from "cadenza/client";
import type { UsedRun } from "cadenza/client/react";
import { useRun } from "cadenza/client/react";
import { durable } from "cadenza/durable";
import { createHandler } from "cadenza/http";
import { act, createElement } from "react";
import { beforeEach, expect, test } from "vitest";
import * as z from "zod";
import { FakeClock } from "../harness/clock.ts";
import { reactPage } from "../harness/react-page.ts";

const approval = z.object({ approved: z.boolean() });

let clock: FakeClock;
let runtime: AgentRuntime;
let used: UsedRun<never>;

const render = reactPage();
beforeEach(() => {
  clock = new FakeClock();
  runtime = new AgentRuntime({ clock, store: durable(new MemoryStore({ clock })) });
  runtime.register("desk", async function* (_input, { ask }) {
    yield "Looking… ";
    const { approved } = await ask("Refund 40 €?", { name: "approval", schema: approval });
    yield approved ? "Refunded." : "Refused.";
  });
});

function client() {
  const handler = createHandler(runtime, { extensions: true });
  return createClient({ url: "http://localhost", fetch: (url, init) => handler(new Request(url, init)) });
}

async function show(run: ClientRun | null): Promise<void> {
  function Page(): null {
    used = useRun(run) as unknown as UsedRun<never>;
    return null;
  }
  await render(createElement(Page));
  await act(() => clock.settle());
}

/** Does something on the page, and waits for what follows. */
async function does(what: () => Promise<void>): Promise<void> {
  await act(what);
  await act(() => clock.settle());
}

const answer = (value: object) => (used.answer as (name: string, value: object) => Promise<void>)("approval", value);

test("a component shows a run, and answers its question", async () => {
  const run = await client().run("desk", "x");
  await show(run);
  expect(used).toMatchObject({ state: { status: "awaiting", text: "Looking… " }, questions: [{ name: "approval" }] });
  await does(() => answer({ approved: "yes" }));
  expect(used.error).toMatchObject({ code: "answer_rejected" });
  expect(used.questions).toHaveLength(1);
  await does(() => answer({ approved: true }));
  expect(used).toMatchObject({
    state: { status: "completed", text: "Looking… Refunded." },
    questions: [],
    error: null,
  });
  expect(used.parts).toMatchObject([{ content: "Looking… Refunded." }]);
});

test("a component stops a run, and declines", async () => {
  const [stopped, declined] = [await client().run("desk", "x"), await client().run("desk", "x")];
  await show(stopped);
  await does(() => used.stop());
  expect(used.state.status).toBe("cancelled");
  await show(declined);
  expect(used.state.status).toBe("awaiting");
  await does(() => (used.decline as (name: string) => Promise<void>)("approval"));
  expect(used.state).toMatchObject({ status: "failed", error: { data: { reason: "answer_declined" } } });
});

test("without a run there is nothing, and a run that does not exist is an error", async () => {
  await show(null);
  expect(used).toMatchObject({ state: { status: "created", text: "" }, parts: [], questions: [], error: null });
  await does(() => used.stop());
  await show(client().attach("desk", "00000000-0000-4000-8000-000000000000"));
  expect(used.error).toMatchObject({ code: "run_not_found" });
});

test("nothing is read after the component has left", async () => {
  const run = await client().run("desk", "x");
  await show(run);
  await show(null);
  await runtime.resume({ run_id: run.run_id, await_resume: { approved: true } });
  await clock.settle();
  expect(run.view.status).toBe("awaiting");
});
