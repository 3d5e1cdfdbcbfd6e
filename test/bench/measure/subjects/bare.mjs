import { randomUUID } from "node:crypto";
import { agents, textAnswer, textMessage, textOf } from "./agents.mjs";

/**
 * The lower bound: generators in a map, driven by the caller. Input, status and output of a run are kept. There is no
 * log, no times, no cancel, and no reader beside the caller.
 */
export function openBare() {
  const runs = new Map();

  const begin = (agent, text) => {
    const input = [textMessage("user", text)];
    const run = {
      id: randomUUID(),
      agent,
      input,
      status: "created",
      output: [],
      question: undefined,
      generator: undefined,
    };
    run.generator = agents[agent](input);
    runs.set(run.id, run);
    return run;
  };

  /** Takes a run to where it waits or ends. */
  const advance = async (run, answer, onPart) => {
    run.status = "in-progress";
    for (let step = await run.generator.next(answer); !step.done; step = await run.generator.next()) {
      if (step.value.type === "message") {
        run.question = step.value.message;
        run.status = "awaiting";
        return run;
      }
      run.output.push(step.value);
      onPart?.(step.value.content);
    }
    run.generator = undefined;
    run.status = "completed";
    return run;
  };

  const result = ({ status, output }) => ({ status, output: output.map((part) => part.content) });
  return {
    echo: async (text) => result(await advance(begin("echo", text))),
    later: async (text) => result(await advance(begin("later", text))),
    stream: (count, onPart) => advance(begin("stream", String(count)), undefined, onPart),
    ask: async (question) => {
      const run = await advance(begin("asks", question));
      if (run.status !== "awaiting" || textOf([run.question]) !== question) throw new Error("The run does not ask.");
      return run.id;
    },
    answer: async (id, text) => result(await advance(runs.get(id), textAnswer(text))),
  };
}
