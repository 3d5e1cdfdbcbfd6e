// What a user's ES module does with the installed package, and with its CommonJS copy beside it.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { AgentError, AgentRuntime, CadenzaError } from "cadenza";

const commonjs = createRequire(import.meta.url)("cadenza");
assert.notEqual(commonjs.AgentRuntime, AgentRuntime, "these are meant to be two copies");

const runtime = new AgentRuntime();
runtime.register("echo", async function* (input) {
  yield* input;
});
const run = await runtime.createRun({ agent_name: "echo", input: "Hello" });
assert.equal(run.status, "completed");
assert.equal(run.output[0].parts[0].content, "Hello");

const error = await runtime.getAgent("missing").catch((reason) => reason);
assert.equal(error.code, "agent_not_found");
assert(CadenzaError.is(error), "an error of this copy");
assert(commonjs.CadenzaError.is(error), "an ESM error is recognised by the CommonJS copy");
assert(CadenzaError.is(await new commonjs.AgentRuntime().getAgent("missing").catch((reason) => reason)), "and back");
assert(commonjs.AgentError.is(new AgentError("not_found", "nothing here")));
assert(!CadenzaError.is(new Error("not one")));

// An agent that uses the other copy fails its run with its own `AgentError`.
runtime.register("strict", () => {
  throw new commonjs.AgentError("not_found", "nothing here");
});
const failed = await runtime.createRun({ agent_name: "strict", input: "Hello" });
assert.equal(failed.status, "failed");
assert.equal(failed.error.code, "not_found");
