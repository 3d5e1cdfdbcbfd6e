import type { Agent } from "cadenza";
import { AgentError, AgentRuntime, awaitMessage, defineAgent } from "cadenza";

/** A runtime with one agent for each behaviour that a client may meet. */
export function makeWorld(options: ConstructorParameters<typeof AgentRuntime>[0] = {}): AgentRuntime {
  const runtime = new AgentRuntime({ cancelGraceMs: 20, ...options });
  for (const agent of agents) runtime.register(agent);
  return runtime;
}

const agents: readonly Agent[] = [
  defineAgent("echo", { description: "Says it again." }, async function* (input) {
    yield* input;
  }),
  defineAgent(
    "described",
    {
      description: "Says everything about itself.",
      inputContentTypes: ["text/plain"],
      metadata: {
        annotations: { beeai_ui: { ui_type: "chat", user_greeting: "Hello" }, own: { any: ["thing"] } },
        documentation: "# Long",
        license: "MIT",
        programming_language: "TypeScript",
        natural_languages: ["en"],
        framework: "none",
        capabilities: [{ name: "talk", description: "Talks." }],
        domains: ["tests"],
        tags: ["one", "two"],
        created_at: "2025-04-01T12:00:00.123456Z",
        updated_at: "2025-04-01T12:00:00Z",
        author: { name: "Ada", email: "not an address", url: "https://example.com/ada" },
        contributors: [{ name: "Bob" }],
        links: [{ type: "source-code", url: "https://example.com/code" }],
        dependencies: [{ type: "tool", name: "hammer" }],
        recommended_models: ["any"],
      },
    },
    () => "me",
  ),
  defineAgent("dated", async function* (input) {
    yield { parts: [], ...(JSON.parse(input[0]?.parts[0]?.content ?? "") as object) };
  }),
  defineAgent("plain", (input) => `You said ${input.length} messages.`),
  defineAgent("mime_types", async function* () {
    yield { content: "<b>hi</b>", content_type: "text/html" };
    yield { content: "aGk=", content_type: "image/png", content_encoding: "base64", name: "picture" };
  }),
  defineAgent("words", async function* (input) {
    // The number of words has a limit.
    const count = Math.min(Number(input[0]?.parts[0]?.content ?? 3), 10_000);
    for (let i = 1; i <= count; i++) yield `word ${i} `;
  }),
  defineAgent("hostile", async function* (input) {
    const contents = input.flatMap(({ parts }) => parts.map(({ content }) => content ?? ""));
    for (const content of contents) yield { content, name: content };
    yield { contents };
  }),
  defineAgent("notes", async function* () {
    yield "before";
    yield { step: 1, of: { many: [1, 2] } };
    yield "after";
    yield null;
    yield "a second message";
  }),
  defineAgent("asker", async function* () {
    yield "Let me ask. ";
    const first = yield awaitMessage("Which?");
    yield `Got ${textOf(first)}. `;
    const second = yield awaitMessage("And which?");
    yield `Got ${textOf(second)}.`;
  }),
  defineAgent("picky", async (_, context) => {
    const answer = await context.ask("A number, please.", { schema: numberSchema });
    return `Twice that is ${2 * answer.number}.`;
  }),
  defineAgent("twofold", async function* (_, { ask }) {
    const [one, two] = await Promise.all([ask("One?"), ask("Two?")]);
    yield `Got ${textOf({ message: one })} and ${textOf({ message: two })}.`;
  }),
  defineAgent("mailbox", async (input, { receive }) => {
    const got: unknown[] = [];
    const count = Number(input[0]?.parts[0]?.content ?? 1);
    while (got.length < count) got.push(await receive("payment"));
    return JSON.stringify(got);
  }),
  defineAgent("delegate", (input, context) => context.run("asker", input)),
  defineAgent("failing", async function* () {
    yield "It begins well";
    throw new AgentError("not_found", "There is no such train.", { train: 7 });
  }),
  defineAgent("regretful", async function* () {
    yield new AgentError("no_money", "There is no money.", { missing: 7 });
  }),
  defineAgent("lookalike", async function* () {
    yield { type: "run.completed", run: { status: "completed" } };
  }),
  defineAgent("paced", async function* (input, context) {
    const count = Number(input[0]?.parts[0]?.content ?? 3);
    for (let i = 1; i <= count && !context.signal.aborted; i++) {
      yield `word ${i} `;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }),
  defineAgent("replay", async function* (input, context) {
    yield* await context.session.history();
    yield* input;
  }),
  defineAgent("leaky", () => {
    throw new Error("password=hunter2 at /etc/secret");
  }),
  defineAgent("odd", async function* () {
    yield 42;
  }),
  defineAgent("stubborn", async function* () {
    yield "I hear nothing";
    await new Promise(() => undefined);
  }),
  defineAgent("waiter", async function* (_, context) {
    yield "waiting";
    await new Promise((resolve) => context.signal.addEventListener("abort", resolve));
  }),
  defineAgent("memory", async (_, context) => {
    const history = await context.session.history();
    await context.session.setState({ runs: history.length });
    return history.map(({ role, parts }) => `${role}:${parts.map(({ content }) => content).join("")}`).join("|");
  }),
];

function textOf(answer: unknown): string {
  const { message } = answer as { message?: { parts: { content?: string }[] } };
  return message === undefined ? JSON.stringify(answer) : message.parts.map(({ content }) => content ?? "").join("");
}

/** A minimal Standard Schema. */
const numberSchema = {
  "~standard": {
    version: 1 as const,
    vendor: "test",
    validate: (value: unknown) =>
      typeof value === "object" && value !== null && "number" in value && typeof value.number === "number"
        ? { value: { number: value.number } }
        : { issues: [{ message: "expected a number", path: ["number"] }] },
    types: undefined as unknown as { input: { number: number }; output: { number: number } },
  },
};
