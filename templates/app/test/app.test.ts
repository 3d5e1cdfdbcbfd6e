import assert from "node:assert/strict";
import { mkdtempSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, it } from "node:test";
import { createClient } from "cadenza/client";
import { createApp } from "../src/app.ts";
import { openRuntime } from "../src/runtime.ts";

const token = "a-token-for-the-tests";
const { runtime, close } = openRuntime(join(mkdtempSync(join(tmpdir(), "app-")), "runs.db"));
const server = createApp(runtime, token);
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
after(async () => {
  server.close();
  server.closeAllConnections();
  await close(0);
});

it("the API runs the desk, and takes an answer", async () => {
  const run = await createClient({ url: `${url}/api` }).run("desk", "I want my money back.");
  for await (const event of run.events({ detail: true })) {
    if (event.type === "question.asked") await run.answer({ await_id: event.question.await_id }, { approved: true });
  }
  const { status, output } = await run.record();
  assert.equal(status, "completed");
  const text = output.flatMap(({ parts }) => parts.map(({ content }) => content ?? "")).join("");
  assert.match(text, /The 40 € are on their way\./);
});

it("the page loads what it needs, and its program has no types left", async () => {
  const page = await (await fetch(url)).text();
  assert.match(page, /<title>Refund desk<\/title>/);
  const files = [...page.matchAll(/"(\/[\w/.-]+)"/g)].map(([, file]) => file);
  assert.deepEqual(files.sort(), ["/cadenza/client.js", "/page.css", "/page.js"]);
  for (const file of files) assert.equal((await fetch(url + file)).status, 200, file);
  const program = await (await fetch(`${url}/page.js`)).text();
  assert.doesNotMatch(program, /interface Chat|: DeskRun/);
  const client = await (await fetch(`${url}/cadenza/client.js`)).text();
  for (const [, chunk] of client.matchAll(/"\.(\/chunk-\w+\.js)"/g))
    assert.equal((await fetch(`${url}/cadenza${chunk}`)).status, 200, chunk);
  assert.equal((await fetch(`${url}/cadenza/package.json`)).status, 404);
});

it("the inspector needs its token", async () => {
  assert.equal((await fetch(`${url}/inspector/`)).status, 401);
  assert.equal((await fetch(`${url}/inspector/?token=${token}`)).status, 200);
});
