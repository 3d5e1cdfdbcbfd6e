import { randomUUID } from "node:crypto";
import { assign, createActor, emit, fromCallback, setup, toPromise, waitFor } from "xstate";

const agent = fromCallback(({ sendBack, receive, input: { kind, text, count } }) => {
  const finish = (content) => {
    sendBack({ type: "part", content });
    sendBack({ type: "done" });
  };
  const stream = async () => {
    for (let i = 0; i < count; i++) {
      sendBack({ type: "part", content: `part ${i}` });
      await null;
    }
    sendBack({ type: "done" });
  };
  if (kind === "stream") void stream();
  else if (kind === "later") setImmediate(finish, text);
  else if (kind === "echo") queueMicrotask(() => finish(text));
  else {
    receive(({ answer }) => finish(answer));
    sendBack({ type: "ask" });
  }
});

/** The life cycle as a state machine. XState is no runtime for agents; the figures are those of its actors alone. */
const machine = setup({ actors: { agent } }).createMachine({
  context: ({ input }) => ({ ...input, output: [], question: undefined }),
  initial: "created",
  states: {
    created: { on: { start: "running" } },
    running: {
      invoke: { id: "agent", src: "agent", input: ({ context }) => context },
      initial: "in-progress",
      states: {
        "in-progress": {
          on: { ask: { target: "awaiting", actions: assign({ question: ({ context }) => context.text }) } },
        },
        awaiting: {
          on: {
            resume: {
              target: "in-progress",
              actions: ({ self, event }) => self.getSnapshot().children.agent.send(event),
            },
          },
        },
      },
      on: {
        part: {
          actions: [
            ({ context, event }) => {
              context.output.push(event.content);
            },
            emit(({ event }) => ({ type: "shown", content: event.content })),
          ],
        },
        done: "completed",
      },
    },
    completed: { type: "final" },
  },
  output: ({ context }) => context.output,
});

export function openXstate() {
  const actors = new Map();
  const begin = (input) => {
    const id = randomUUID();
    const actor = createActor(machine, { input });
    actors.set(id, actor);
    actor.start();
    return { id, actor };
  };
  const result = async (actor, event, onPart) => {
    if (onPart !== undefined) actor.on("shown", ({ content }) => onPart(content));
    actor.send(event);
    const output = await toPromise(actor);
    return { status: actor.getSnapshot().value, output };
  };
  const run = (input, onPart) => result(begin(input).actor, { type: "start" }, onPart);
  return {
    echo: (text) => run({ kind: "echo", text }),
    later: (text) => run({ kind: "later", text }),
    stream: (count, onPart) => run({ kind: "stream", count }, onPart),
    ask: async (question) => {
      const { id, actor } = begin({ kind: "asks", text: question });
      actor.send({ type: "start" });
      const { context } = await waitFor(actor, (snapshot) => snapshot.matches({ running: "awaiting" }));
      if (context.question !== question) throw new Error("The actor does not ask.");
      return id;
    },
    answer: (id, text) => result(actors.get(id), { type: "resume", answer: text }),
  };
}
