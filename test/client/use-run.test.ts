import { AgentRuntime, MemoryStore } from "cadenza";
import type { ClientRun } from "cadenza/client";
import { createClient } from "cadenza/client";
import type { UsedRun } from "cadenza/client/react";
import { useRun } from "cadenza/client/react";
import { createAcpHandler } from "cadenza/http";
import { durable } from "cadenza/store";
import { act, createElement } from "react";
import { beforeEach, expect, it, vi } from "vitest";
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
  const handler = createAcpHandler(runtime, { extensions: true });
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

it("a component shows a run, and answers its question", async () => {
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

it("a component stops a run, and declines", async () => {
  const [stopped, declined] = [await client().run("desk", "x"), await client().run("desk", "x")];
  await show(stopped);
  await does(() => used.stop());
  expect(used.state.status).toBe("cancelled");
  await show(declined);
  expect(used.state.status).toBe("awaiting");
  await does(() => (used.decline as (name: string) => Promise<void>)("approval"));
  expect(used.state).toMatchObject({ status: "failed", error: { data: { reason: "answer_declined" } } });
});

it("without a run there is nothing, and a run that does not exist is an error", async () => {
  await show(null);
  expect(used).toMatchObject({ state: { status: "created", text: "" }, parts: [], questions: [], error: null });
  await does(() => used.stop());
  await show(client().attach("desk", "00000000-0000-4000-8000-000000000000"));
  expect(used.error).toMatchObject({ code: "run_not_found" });
});

it("nothing is read after the component has left", async () => {
  const run = await client().run("desk", "x");
  await show(run);
  await show(null);
  await runtime.resume({ run_id: run.run_id, await_resume: { approved: true } });
  await clock.settle();
  expect(run.view.status).toBe("awaiting");
});

/** A component that makes its run in each render. */
async function showInRender(make: () => ClientRun): Promise<void> {
  function Page(): null {
    used = useRun(make()) as unknown as UsedRun<never>;
    return null;
  }
  await render(createElement(Page));
  await act(() => clock.settle());
}

it("a run may be attached in the render", async () => {
  const once = client();
  const { run_id } = await once.run("desk", "x");
  await showInRender(() => once.attach("desk", run_id));
  expect(used).toMatchObject({ state: { status: "awaiting", text: "Looking… " }, questions: [{ name: "approval" }] });
  await does(() => answer({ approved: true }));
  expect(used).toMatchObject({ state: { status: "completed", text: "Looking… Refunded." }, error: null });
});

it("another client may take over, again and again", async () => {
  const { run_id } = await client().run("desk", "x");
  for (let change = 0; change < 6; change++) {
    const once = client();
    await showInRender(() => once.attach("desk", run_id));
    expect(used.state.text).toBe("Looking… ");
  }
});

it("a client that is made in the render is refused with what to do", async () => {
  const { run_id } = await client().run("desk", "x");
  const logged = vi.spyOn(console, "error").mockReturnValue();
  await expect(showInRender(() => client().attach("desk", run_id))).rejects.toThrow("Make the client once");
  logged.mockRestore();
});

it("a component shows no part of an attempt at a step that is made again", async () => {
  let fail = (_error: Error): void => {};
  runtime.register("model", { durable: true }, async function* (_input, { step }) {
    yield "First. ";
    await step(
      "answer",
      async ({ emit, attempt }) => {
        await emit("One ");
        await emit("two ");
        await emit({ name: "draft.txt", content: "draft" });
        if (attempt === 1)
          await new Promise<never>((_resolve, reject) => {
            fail = reject;
          });
        await emit("three. ");
      },
      { retry: { attempts: 2 } },
    );
    yield "Last.";
  });
  await show(await client().run("model", "x"));
  expect(used.state.text).toBe("First. One two ");
  expect(used.parts).toHaveLength(2);
  await does(async () => fail(new Error("The model broke off.")));
  for (let seconds = 0; seconds < 60; seconds++) await act(() => clock.advance(1_000));
  expect(used.state).toMatchObject({ status: "completed", text: "First. One two three. Last." });
  expect(used.parts.map(({ content }) => content)).toEqual(["First. One two ", "draft", "three. Last."]);
});

it("a component that cannot read its run reads it when it is shown again", async () => {
  const run = await client().run("desk", "x");
  const watched: unknown[] = [];
  const broken = createClient({ url: "http://localhost", fetch: async () => new Response("No.", { status: 403 }) });
  const lost = broken.attach("desk", run.run_id);
  const unwatch = lost.watch(
    () => {},
    (error) => watched.push(error),
  );
  lost.watch(
    () => {},
    (error) => watched.push(error),
  );
  await clock.settle();
  unwatch();
  expect(watched).toMatchObject([{ status: 403 }, { status: 403 }]);
  lost.watch(
    () => {},
    (error) => watched.push(error),
  );
  await clock.settle();
  expect(watched).toHaveLength(4);
});
