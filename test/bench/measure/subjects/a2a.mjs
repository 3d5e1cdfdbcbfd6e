import { randomUUID } from "node:crypto";
import { Role, TaskState } from "@a2a-js/sdk";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore, ServerCallContext } from "@a2a-js/sdk/server";

const card = {
  name: "bench",
  description: "What the benchmark runs.",
  version: "1.0.0",
  provider: undefined,
  supportedInterfaces: [],
  capabilities: { streaming: true, pushNotifications: false, extensions: [] },
  securitySchemes: {},
  securityRequirements: [],
  defaultInputModes: ["text/plain"],
  defaultOutputModes: ["text/plain"],
  skills: [],
  signatures: [],
};

/** The A2A SDK without its HTTP: a request handler and its store in memory. */
export function openA2a() {
  const handler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Executor());
  const context = () => new ServerCallContext({ requestedVersion: "1.0" });
  const request = (text, metadata, ids) => ({
    tenant: "",
    message: { ...message(Role.ROLE_USER, text, ids), metadata },
    configuration: undefined,
    metadata: {},
  });
  const send = (text, metadata, ids) => handler.sendMessage(request(text, metadata, ids), context());
  return {
    isQuadratic: true,
    echo: async (text) => result(await send(text, { agent: "echo" })),
    later: async (text) => result(await send(text, { agent: "later" })),
    stream: async (count, onPart) => {
      let state;
      for await (const { payload } of handler.sendMessageStream(request("go", { agent: "stream", count }), context())) {
        if (payload.$case === "artifactUpdate") onPart(payload.value.artifact.parts[0].content.value);
        else if (payload.$case === "statusUpdate") ({ state } = payload.value.status);
      }
      return { status: statusOf(state) };
    },
    ask: async (question) => {
      const { id, contextId, status } = await send(question, { agent: "asks" });
      const isAsked = status.state === TaskState.TASK_STATE_INPUT_REQUIRED;
      if (!isAsked || status.message.parts[0].content.value !== question) throw new Error("The task does not ask.");
      return { taskId: id, contextId };
    },
    answer: async (ids, text) => result(await send(text, { agent: "asks" }, ids)),
  };
}

/** The agents, with no more events than the SDK requires. */
class Executor {
  async execute({ task, taskId, contextId, userMessage }, bus) {
    const { agent, count } = userMessage.metadata;
    const text = userMessage.parts[0].content.value;
    const status = (state, said) => ({ state, message: said, timestamp: new Date().toISOString() });
    const publishStatus = (state, said) =>
      bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state, said), metadata: {} }));
    const publishPart = (content, append) => {
      const artifact = {
        artifactId: "output",
        name: "",
        description: "",
        parts: [part(content)],
        metadata: {},
        extensions: [],
      };
      bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, artifact, append, lastChunk: false, metadata: {} }));
    };
    if (task === undefined) {
      const working = status(TaskState.TASK_STATE_WORKING, undefined);
      const history = [userMessage];
      bus.publish(AgentEvent.task({ id: taskId, contextId, status: working, history, artifacts: [], metadata: {} }));
      if (agent === "asks") {
        const question = message(Role.ROLE_AGENT, text, { taskId, contextId });
        publishStatus(TaskState.TASK_STATE_INPUT_REQUIRED, question);
        return;
      }
    }
    if (agent === "later") await new Promise(setImmediate);
    if (agent !== "stream") publishPart(text, false);
    for (let i = 0; agent === "stream" && i < count; i++) {
      publishPart(`part ${i}`, i > 0);
      await null;
    }
    publishStatus(TaskState.TASK_STATE_COMPLETED, undefined);
  }

  async cancelTask() {}
}

function result({ status, artifacts }) {
  const parts = artifacts.flatMap((artifact) => artifact.parts);
  return { status: statusOf(status.state), output: parts.map(({ content }) => content.value) };
}

function statusOf(state) {
  return state === TaskState.TASK_STATE_COMPLETED ? "completed" : `state ${state}`;
}

function message(role, text, ids = { taskId: "", contextId: "" }) {
  return {
    messageId: randomUUID(),
    role,
    parts: [part(text)],
    metadata: {},
    extensions: [],
    referenceTaskIds: [],
    ...ids,
  };
}

function part(value) {
  return { content: { $case: "text", value }, mediaType: "text/plain", filename: "", metadata: {} };
}
