import { AgentRuntime } from "cadenza";
import type { Report } from "../commands/report.ts";
import type { Place } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";

/** What PostgreSQL refuses in its own JSON, and a half of a character. */
const ODD = "a\0b\ud800c";
const HUGE = 300_000_000;
/** Each of these characters has six in JSON, and more in the JSON around it. */
const ESCAPED = 45_000_000;
const UNLIMITED = { maxPartBytes: Infinity, maxStepBytes: Infinity, maxLogBytes: Infinity };

/**
 * Gives a store what is too large for it, and characters that it may refuse, wherever text can be. Such a run ends as
 * failed and says why, or has what it was given. Other runs complete. Answers how many runs were tried.
 */
export async function refused(place: Place, report: Report): Promise<number> {
  const kind = "file" in place ? "SQLite" : "PostgreSQL";
  const runtime = new AgentRuntime({ store: await openPlace(place), limits: UNLIMITED });
  let isOver = false;
  let others = 0;
  runtime.register("other", { durable: true }, async (_input, { step }) => {
    for (let n = 0; n < 3; n++) await step("small", () => n);
    return "done";
  });
  const other = async (): Promise<void> => {
    while (!isOver) {
      const { status, error } = await runtime.createRun({ agent_name: "other", input: "" });
      if (status === "completed") others += 1;
      else report.wrong(`${kind}: another run is ${status}: ${error?.message}`);
    }
  };
  const creating = [other(), other(), other()];

  const huge = { "300 MB": () => "x".repeat(HUGE), "45 MB of control characters": () => "\u0001".repeat(ESCAPED) };
  for (const [name, make] of Object.entries(huge)) {
    const agent = `huge-${name.replaceAll(" ", "-")}`;
    runtime.register(agent, { durable: true }, async (_input, { step }) => {
      await step("small", () => 1);
      await step("huge", make);
      return "done";
    });
    const before = others;
    const { status, error } = await runtime.createRun({ agent_name: agent, input: "" });
    const isClear = status === "completed" || /can never hold|limit|characters/.test(error?.message ?? "");
    const said = `${kind}: a result of ${name} is ${status}${error ? `: ${error.message}` : ""}`;
    report.check(isClear, `${said} (${others - before} others completed meanwhile)`);
  }

  runtime.register("odd", { durable: true }, async (input, { step, ask, emit, session, receive }) => {
    const given = input[0]?.parts[0]?.content ?? "";
    const kept = await step(`step ${ODD}`, () => ({ [ODD]: given }));
    await emit({ content: ODD, name: ODD });
    await emit({ content: "cited", metadata: { kind: "citation", title: ODD } });
    await session.setState({ [ODD]: ODD });
    const answer = await ask(ODD);
    const mail = await receive(ODD);
    if (given.startsWith("fail")) throw new Error(ODD);
    return JSON.stringify([kept, answer, mail]);
  });
  const scope = runtime.scope({ tenant: ODD, principal: { name: ODD, user: ODD } });
  const labels = { [ODD]: ODD };
  for (const input of [ODD, `fail ${ODD}`]) {
    const asked = { agent_name: "odd", input };
    const { run_id, session_id, status } = await scope.createRun(asked, { idempotencyKey: `${input} ${ODD}`, labels });
    await scope.send({ to: run_id, name: ODD, data: { [ODD]: ODD } });
    const ended = await scope.resume({ run_id, await_resume: { text: ODD } }).catch((error: Error) => error);
    const stored = await scope.getRun(run_id);
    const text = JSON.stringify(stored.output);
    const expected = input === ODD ? "completed" : "failed";
    const isKept = text.includes(JSON.stringify(ODD)) && (expected === "failed" || (session_id ?? "") !== "");
    report.check(
      status === "awaiting" && stored.status === expected && isKept,
      `${kind}: \\u0000 in all places, the agent ${expected === "failed" ? "throws" : "returns"}: ${stored.status}${ended instanceof Error ? `, ${ended.message}` : ""}`,
    );
  }
  const found = await scope.listRuns({ labels });
  report.check(found.length === 2, `${kind}: ${found.length} of 2 runs are found by such a label`);
  isOver = true;
  await Promise.all(creating);
  report.check(others > 0, `${kind}: ${others} other runs completed`);
  await runtime.close();
  return Object.keys(huge).length + 2;
}
