import { expect, it } from "vitest";
import worker from "../../examples/http/worker.ts";
import { Client } from "../http/client.ts";

it("the example for Workers serves runs, and waits for those that are async", async () => {
  const waiting: Promise<void>[] = [];
  const context = { waitUntil: (rest: Promise<void>) => waiting.push(rest) };
  const client = new Client({ base: "http://worker.test", fetch: (request) => worker.fetch(request, {}, context) });
  expect((await client.run("echo", "hi")).json).toMatchObject({ status: "completed" });
  expect(waiting).toEqual([]);
  const { json } = await client.run("echo", "hi", { mode: "async" });
  expect(json).toMatchObject({ status: "created" });
  await Promise.all(waiting);
  expect((await client.get(`/runs/${json["run_id"]}`)).json).toMatchObject({ status: "completed" });
});
