import { faultOf, runProgram } from "../harness/processes.ts";

/** An example that is a program which ends by itself. */
export interface ExampleProgram {
  readonly args?: readonly string[];
  /** The text for its stdin. */
  readonly input?: string;
  /** What it prints, in this order. */
  readonly prints: readonly RegExp[];
}

/** The examples that end by themselves, by their file. */
export const examplePrograms: Readonly<Record<string, ExampleProgram>> = {
  "echo.ts": {
    prints: [/sync: +completed "Hello"/, /async: +created/, /stream: 1 run\.created/, /stream: 6 run\.completed/],
  },
  "approval.ts": {
    prints: [/awaiting: Book it\?/, /"approved"/, /answer_rejected/, /still awaiting/, /completed: .*Booked 2/s],
  },
  "ai-sdk.ts": { prints: [/Soft the soloist plays/, /\d+ tokens/] },
  "chat.ts": { prints: [/user: I am Ada\./, /chat: Pleased/, /user: Do you/, /chat: .* number 2\./] },
  "orchestrator.ts": {
    prints: [/The jury withdraws/, /critic: .*drama/, /fan: .*tears/, /two jurors/, /all three: 212/],
  },
  "cancel.ts": { prints: [/Opened/, /Read page 3/, /-- cancelling/, /Closed the browser/, /-- cancelled/] },
  "statistics.ts": {
    prints: [/before: {}/, /failed: A die/, /avg_run_tokens: 42/, /success_rate: 75/, /cancelled: 1/],
  },
  "schedule.ts": { prints: [/next: \[/, /The figures of .*Z\./, /The figures of .*Z\./] },
  "faces.ts": {
    prints: [
      /useChat +I have found your order\..*\nuseChat +asks: Refund 40 €\?\nACP +the run is awaiting\n/,
      /A2A +the task is TASK_STATE_INPUT_REQUIRED, and is answered\n/,
      /AG-UI +I wait for the bank\..*\n/,
      /MCP +cancels the task\n/,
      /ACP +the run is cancelled\n/,
    ],
  },
  "licence-audit/main.ts": { args: ["--yes"], prints: [/Looked at \d+ of \d+/, /yes \(--yes\)/, /success_rate +100/] },
  "durable-approval/main.ts": {
    args: ["booking.db"],
    input: "y\n",
    prints: [/has begun/, /searching/, /Book it\? \(y\/n\)/, /attempt 1/, /Booked: ticket/, /Done\./],
  },
};

/** Runs an example of the project. Answers with what went wrong, or undefined. */
export async function tryExample(
  file: string,
  { args = [], input, prints }: ExampleProgram,
  project: { readonly cwd: string; readonly node?: string },
): Promise<string | undefined> {
  const ended = await runProgram([`examples/${file.replace(/ts$/, "js")}`, ...args], { ...project, input });
  const fault = faultOf(ended);
  if (fault !== undefined) return fault;
  let rest = ended.stdout;
  for (const pattern of prints) {
    const found = pattern.exec(rest);
    if (found === null) return `${pattern} is missing in what follows:\n${rest}`;
    rest = rest.slice(found.index + found[0].length);
  }
  return undefined;
}
