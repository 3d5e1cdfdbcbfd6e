import { agents, resultOf, textAnswer, textOf } from "./agents.mjs";
import { library } from "./library.mjs";

const { AgentRuntime, MemoryStore } = await import(library);

/** No retention and no limits, since the other subjects have none. */
const unbounded = {
  retention: { maxRuns: Number.POSITIVE_INFINITY, maxAgeMs: Number.POSITIVE_INFINITY },
  limits: { maxLiveRuns: Number.POSITIVE_INFINITY, maxLogEntries: Number.POSITIVE_INFINITY },
};

/**
 * The library, through what it exports. With `asks`, agents ask with `context.ask`; with `isStoreLate`, the store
 * answers each call with a promise.
 */
export function openCadenza({ asks = false, isStoreLate = false } = {}) {
  const runtime = new AgentRuntime({ ...unbounded, ...(isStoreLate && { store: lateStore(new MemoryStore()) }) });
  for (const [name, agent] of Object.entries(agents)) runtime.register(name, agent);
  if (asks) runtime.register({ name: "asks", options: {}, fn: askingAgent }, { replace: true });

  return {
    runtime,
    echo: async (input) => resultOf(await runtime.createRun({ agent_name: "echo", input })),
    later: async (input) => resultOf(await runtime.createRun({ agent_name: "later", input })),
    stream: async (count, onPart) => {
      let status;
      for await (const event of runtime.createRun({ agent_name: "stream", input: String(count), mode: "stream" })) {
        if (event.type === "message.part") onPart(event.part.content);
        else if (event.type === "run.completed") status = event.run.status;
      }
      return { status };
    },
    ask: async (question) => {
      const run = await runtime.createRun({ agent_name: "asks", input: question });
      if (run.status !== "awaiting" || textOf([run.await_request.message]) !== question)
        throw new Error("The run does not ask.");
      return run.run_id;
    },
    answer: async (run_id, text) => resultOf(await runtime.resume({ run_id, await_resume: textAnswer(text) })),
  };
}

async function askingAgent(input, context) {
  const answer = await context.ask(textOf(input));
  return textOf([answer]);
}

/** The same store, whose methods answer with promises. */
function lateStore(store) {
  return new Proxy(store, {
    get(target, name) {
      const member = target[name];
      return typeof member === "function" ? async (...parameters) => member.apply(target, parameters) : member;
    },
  });
}
