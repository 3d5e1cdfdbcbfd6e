import { AgentRuntime, defineAgent } from "cadenza";
import { createAgUiHandler } from "cadenza/ag-ui";
import { createChatHandler } from "cadenza/ai-sdk";
import { createAcpHandler } from "cadenza/http";
import { createInspectorHandler } from "cadenza/inspector";
import { z } from "zod";

const limits = { maxBodyBytes: Number.POSITIVE_INFINITY };

/** An endpoint that takes JSON, and a body for it that holds a shape. `quotes`: in a string. */
export interface Target {
  readonly name: string;
  readonly handler: (request: Request) => Promise<Response>;
  readonly path: string | (() => Promise<string>);
  readonly body: (shape: string) => string | Promise<string>;
  readonly quotes?: boolean;
}

export interface Targets {
  readonly forValues: readonly Target[];
  /** The parts of a message. */
  readonly forParts: readonly Target[];
  close(): Promise<unknown>;
}

/** Every endpoint that takes JSON, with the limit on bytes switched off. */
export function openTargets(): Targets {
  const runtime = new AgentRuntime({ limits: { maxPartBytes: Number.POSITIVE_INFINITY } })
    .register("plain", () => "ok")
    .register(defineAgent("typed", { input: z.object({ a: z.number() }) }).run(() => "ok"))
    .register("asks", async (_input, { ask }) => void (await ask("Well?", { schema: z.object({ a: z.number() }) })))
    .register("receives", async (_input, { receive }) => void (await receive("never")));
  const acp = createAcpHandler(runtime, { limits, extensions: true });
  const chat = createChatHandler(runtime, { limits });
  const agUi = createAgUiHandler(runtime, { limits });
  const inspector = createInspectorHandler(runtime, { authorize: () => ({ allTenants: true }), limits });
  const runPath = async (agent_name: string): Promise<string> =>
    `/runs/${(await runtime.createRun({ agent_name, input: "", mode: agent_name === "asks" ? "sync" : "async" })).run_id}`;
  /** The body of an inspector's action on a new run of an agent that waits. */
  const onRun =
    (agent_name: string, more: (shape: string) => string): Target["body"] =>
    async (shape) =>
      `{"run_id":"${(await runPath(agent_name)).split("/")[2]}",${more(shape)}}`;

  const forValues: readonly Target[] = [
    { name: "ACP body", handler: acp, path: "/runs", body: (value) => value },
    { name: "ACP metadata", handler: acp, path: "/runs", body: (value) => input("plain", `[{"metadata":${value}}]`) },
    {
      name: "ACP unknown field",
      handler: acp,
      path: "/runs",
      body: (value) => `{"agent_name":"plain","input":[],"x":${value}}`,
    },
    {
      name: "ACP typed input",
      handler: acp,
      path: "/runs",
      body: (value) => input("typed", text(value)),
      quotes: true,
    },
    {
      name: "ACP answer",
      handler: acp,
      path: () => runPath("asks"),
      body: (value) => `{"await_resume":{"value":${value}}}`,
    },
    {
      name: "ACP answer's text",
      handler: acp,
      path: () => runPath("asks"),
      body: (value) => answer(text(value)),
      quotes: true,
    },
    {
      name: "ACP message",
      handler: acp,
      path: async () => `${await runPath("receives")}/messages/x`,
      body: (value) => value,
    },
    {
      name: "chat part",
      handler: chat,
      path: "/plain",
      body: (value) => chatBody(`"parts":[{"type":"text","text":"hi"},{"type":"data-x","data":${value}}]`),
    },
    {
      name: "chat metadata",
      handler: chat,
      path: "/plain",
      body: (value) => chatBody(`"parts":[{"type":"text","text":"hi"}],"metadata":${value}`),
    },
    {
      name: "AG-UI state",
      handler: agUi,
      path: "/plain",
      body: (value) => agUiBody(`"state":${value},"tools":[],"context":[],"forwardedProps":{}`),
    },
    {
      name: "AG-UI tool",
      handler: agUi,
      path: "/plain",
      body: (value) =>
        agUiBody(
          `"state":{},"tools":[{"name":"t","description":"","parameters":${value}}],"context":[],"forwardedProps":{}`,
        ),
    },
    {
      name: "inspector's input",
      handler: inspector,
      path: "/api/create",
      body: (value) => `{"agent_name":"plain","input":${value}}`,
    },
    {
      name: "inspector's typed input",
      handler: inspector,
      path: "/api/create",
      body: (value) => `{"agent_name":"typed","input":${value}}`,
    },
    {
      name: "inspector's unknown field",
      handler: inspector,
      path: "/api/create",
      body: (value) => `{"agent_name":"plain","x":${value}}`,
    },
    {
      name: "inspector's answer",
      handler: inspector,
      path: "/api/answer",
      body: onRun("asks", (value) => `"await_id":"ask#1","answer":${value}`),
    },
    {
      name: "inspector's message",
      handler: inspector,
      path: "/api/send",
      body: onRun("receives", (value) => `"name":"x","data":${value}`),
    },
  ];
  const forParts: readonly Target[] = [
    { name: "ACP parts", handler: acp, path: "/runs", body: (all) => input("plain", all) },
    { name: "ACP typed parts", handler: acp, path: "/runs", body: (all) => input("typed", all) },
    {
      name: "inspector's parts",
      handler: inspector,
      path: "/api/create",
      body: (all) => `{"agent_name":"plain","input":[{"role":"user","parts":${all}}]}`,
    },
    {
      name: "inspector's list of parts",
      handler: inspector,
      path: "/api/create",
      body: (all) => `{"agent_name":"plain","input":${all}}`,
    },
    { name: "ACP answer's parts", handler: acp, path: () => runPath("asks"), body: answer },
    {
      name: "ACP history",
      handler: acp,
      path: "/runs",
      body: (all) => `{"agent_name":"plain","input":[],"session":{"history":[{"role":"user","parts":${all}}]}}`,
    },
  ];
  return { forValues, forParts, close: () => runtime.close({ drainMs: 0 }) };
}

const input = (agent: string, parts: string): string =>
  `{"agent_name":"${agent}","input":[{"role":"user","parts":${parts}}]}`;
const text = (value: string): string => `[{"content_type":"application/json","content":${JSON.stringify(value)}}]`;
const answer = (parts: string): string =>
  `{"await_resume":{"type":"message","message":{"role":"user","parts":${parts}}}}`;
const chatBody = (message: string): string =>
  `{"id":"${crypto.randomUUID()}","messages":[{"id":"m","role":"user",${message}}]}`;
const agUiBody = (more: string): string =>
  `{"threadId":"${crypto.randomUUID()}","runId":"r","messages":[{"id":"m","role":"user","content":"hi"}],${more}}`;
