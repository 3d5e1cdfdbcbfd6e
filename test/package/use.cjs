// What a user's CommonJS module does with the installed package.
const assert = require("node:assert/strict");
const { AgentRuntime, CadenzaError } = require("cadenza");

const runtime = new AgentRuntime();
runtime.register("echo", (input) => input);

runtime
  .createRun({ agent_name: "echo", input: "Hello" })
  .then(async (run) => {
    assert.equal(run.status, "completed");
    assert.equal(run.output[0].parts[0].content, "Hello");
    await assert.rejects(runtime.getRun("missing"), (error) => CadenzaError.is(error));
  })
  .catch((error) => {
    process.exitCode = 1;
    console.error(error);
  });
