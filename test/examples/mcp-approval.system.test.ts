import { expect, it } from "vitest";
import { faultOf, PROCESS_TIMEOUT_MS } from "../harness/processes.ts";
import { runMain } from "./run-main.ts";

it("a tool call outlives a kill of its server while it waits for an approval", {
  timeout: PROCESS_TIMEOUT_MS,
}, async () => {
  const ended = await runMain("mcp-approval/demo.ts");
  expect(faultOf(ended)).toBeUndefined();
  expect(ended.stdout.trimEnd().split("\n")).toEqual([
    "The server has started.",
    "The tool is called, and the call is a task.",
    "It asks: Refund 40 €?",
    "kill -9 of the server, while the call waits.",
    "The server has started again. The answer is yes.",
    "The result: Order A-17: 40 € refunded.",
  ]);
});
