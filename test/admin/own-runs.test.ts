import { createAdmin } from "cadenza/admin";
import { schedules } from "cadenza/schedules";
import { expect, it } from "vitest";
import { inMemory, onFile } from "../harness/world/replicas.ts";

/* The runs of the runtime's own, those of schedules and acts, are in no list and no figure, unless their tenant is named. */

const own = "cadenza:operators";

it.each([
  ["in memory", inMemory],
  ["on a file", onFile],
] as const)("%s: lists and figures leave out the runtime's own runs", async (_on, open) => {
  const replicas = open();
  const seen: string[] = [];
  const { runtime } = replicas.start({
    interceptors: [
      {
        create: ({ agent_name }) => void seen.push(agent_name),
        run: ({ agent_name }, next) => {
          seen.push(agent_name);
          return next();
        },
        step: ({ agent_name }, next) => {
          seen.push(agent_name);
          return next();
        },
      },
    ],
  });
  runtime.register("report", { durable: true }, () => "Done.");
  runtime.register("asks", { durable: true }, async (_input, { ask }) => void (await ask("Well?")));
  await schedules(runtime).put({ id: "a", agent_name: "report", input: "", everyMs: 60_000 });
  await runtime.createRun({ agent_name: "asks", input: "" });
  const admin = createAdmin(runtime);
  const { run_id } = await admin.cancelMany({ agent_name: "none" });
  expect((await runtime.stats()).live).toEqual({ awaiting: 1 });
  await replicas.clock.advance(61_000);
  expect((await admin.runs()).items.map(({ tenant }) => tenant)).toEqual(["", ""]);
  expect((await admin.runs({ tenant: own })).items).toHaveLength(2);
  expect((await admin.runs({ among: [{ tenant: own, run_id }] })).items).toHaveLength(1);
  expect((await admin.versions()).map(({ agent_name }) => agent_name).sort()).toEqual(["asks", "report"]);
  expect((await admin.backlog()).map(({ agent_name }) => agent_name)).toEqual(["asks"]);
  expect(new Set(seen)).toEqual(new Set(["report", "asks"]));
  const other = replicas.start();
  expect((await other.runtime.stats()).unregistered).toBe(1);
  expect((await createAdmin(other.runtime).unregistered()).map(({ agent_name }) => agent_name)).toEqual(["asks"]);
  expect((await createAdmin(other.runtime).act(run_id)).status).toBe("completed");
});
