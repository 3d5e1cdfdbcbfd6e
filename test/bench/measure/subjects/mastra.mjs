import { Mastra } from "@mastra/core/mastra";
import { InMemoryStore } from "@mastra/core/storage";
import { createStep, createWorkflow } from "@mastra/core/workflows";
import * as z from "zod";

const inputSchema = z.object({ text: z.string(), count: z.number().optional() });
const outputSchema = z.object({ text: z.string() });
const suspendSchema = z.object({ question: z.string() });

const agents = {
  echo: async ({ inputData }) => ({ text: inputData.text }),
  later: async ({ inputData }) => {
    await new Promise(setImmediate);
    return { text: inputData.text };
  },
  stream: async ({ inputData, writer }) => {
    for (let i = 0; i < inputData.count; i++) await writer.custom({ type: "data-part", data: `part ${i}` });
    return { text: "done" };
  },
  asks: async ({ inputData, resumeData, suspend }) =>
    resumeData === undefined ? suspend({ question: inputData.text }) : { text: resumeData.text },
};

/** Mastra: a workflow of one step for each agent, with its store in memory. */
export function openMastra() {
  const workflows = Object.fromEntries(
    Object.entries(agents).map(([id, execute]) => {
      const step = createStep({
        id: "agent",
        inputSchema,
        outputSchema,
        resumeSchema: outputSchema,
        suspendSchema,
        execute,
      });
      return [id, createWorkflow({ id, inputSchema, outputSchema }).then(step).commit()];
    }),
  );
  const mastra = new Mastra({ workflows, storage: new InMemoryStore(), logger: false });
  const begin = (agent, options) => mastra.getWorkflow(agent).createRun(options);
  const run = async (agent, text) => result(await (await begin(agent)).start({ inputData: { text } }));
  return {
    echo: (text) => run("echo", text),
    later: (text) => run("later", text),
    stream: async (count, onPart) => {
      const stream = (await begin("stream")).stream({ inputData: { text: "", count } });
      for await (const chunk of stream.fullStream) if (chunk.type === "data-part") onPart(chunk.data);
      return result(await stream.result);
    },
    ask: async (question) => {
      const started = await begin("asks");
      const { status, steps } = await started.start({ inputData: { text: question } });
      if (status !== "suspended" || steps.agent.suspendPayload.question !== question)
        throw new Error("The workflow does not ask.");
      return started.runId;
    },
    answer: async (runId, text) =>
      result(await (await begin("asks", { runId })).resume({ step: "agent", resumeData: { text } })),
  };
}

function result({ status, result: output }) {
  return { status: status === "success" ? "completed" : status, output: [output?.text] };
}
