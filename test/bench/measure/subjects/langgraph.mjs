import { randomUUID } from "node:crypto";
import { Annotation, Command, END, interrupt, MemorySaver, START, StateGraph } from "@langchain/langgraph";

const State = Annotation.Root({ text: Annotation(), count: Annotation(), output: Annotation() });

const agents = {
  echo: ({ text }) => ({ output: text }),
  later: async ({ text }) => {
    await new Promise(setImmediate);
    return { output: text };
  },
  stream: async ({ count }, { writer }) => {
    for (let i = 0; i < count; i++) {
      writer(`part ${i}`);
      await null;
    }
    return { output: "done" };
  },
  asks: ({ text }) => ({ output: interrupt(text) }),
};

/** LangGraph: a graph of one node for each agent, with the checkpointer that keeps its threads in memory. */
export function openLanggraph() {
  const checkpointer = new MemorySaver();
  const graphs = Object.fromEntries(
    Object.entries(agents).map(([name, agent]) => {
      const graph = new StateGraph(State).addNode("agent", agent).addEdge(START, "agent").addEdge("agent", END);
      return [name, graph.compile({ checkpointer })];
    }),
  );
  const thread = () => ({ configurable: { thread_id: randomUUID() } });
  const result = (state) => ({
    status: state.__interrupt__?.length > 0 ? "awaiting" : "completed",
    output: [state.output],
  });
  return {
    echo: async (text) => result(await graphs.echo.invoke({ text }, thread())),
    later: async (text) => result(await graphs.later.invoke({ text }, thread())),
    stream: async (count, onPart) => {
      const parts = await graphs.stream.stream({ count }, { ...thread(), streamMode: "custom" });
      for await (const text of parts) onPart(text);
      // A node that fails makes the loop above throw.
      return { status: "completed" };
    },
    ask: async (question) => {
      const config = thread();
      const state = await graphs.asks.invoke({ text: question }, config);
      if (state.__interrupt__?.[0]?.value !== question) throw new Error("The graph does not ask.");
      return config;
    },
    answer: async (config, text) => result(await graphs.asks.invoke(new Command({ resume: text }), config)),
  };
}
