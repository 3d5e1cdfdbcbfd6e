import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, inject, it } from "vitest";
import { PROCESS_TIMEOUT_MS } from "../harness/processes.ts";
import { examplePrograms, tryExample } from "./programs.ts";

const cwd = inject("projectFolder");

it.concurrent.each(Object.entries(examplePrograms))(
  "the example %s prints what it should and ends",
  {
    timeout: PROCESS_TIMEOUT_MS,
  },
  async (file, program) => {
    expect(await tryExample(file, program, { cwd })).toBeUndefined();
  },
);

it("every example with a main is among them, or has a test of its own", () => {
  const testedElsewhere = ["model.ts", "page-bundle.ts", "serve.ts", "start.ts"];
  const folder = fileURLToPath(new URL("../../examples/", import.meta.url));
  const files = readdirSync(folder).filter((file) => file.endsWith(".ts") && !testedElsewhere.includes(file));
  expect(Object.keys(examplePrograms)).toEqual(expect.arrayContaining(files));
});
