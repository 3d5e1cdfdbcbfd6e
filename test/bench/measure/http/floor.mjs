import { z } from "zod";
import { openBareDuties } from "../subjects/bare-duties.mjs";

const part = z.object({ content_type: z.string(), content: z.string() });
const request = z.object({
  agent_name: z.enum(["echo", "stream"]),
  input: z.array(z.object({ role: z.string(), parts: z.array(part).min(1) })).min(1),
  mode: z.enum(["sync", "stream"]).default("sync"),
});

/*
 * What an application would write by hand for the same requests: it reads the body, checks it with zod, and answers
 * with JSON or with an event for each part. It has no routes, limits, rights or errors beyond that.
 */
export function listenerByHand() {
  const subject = openBareDuties();
  const answer = async (body, response) => {
    const { agent_name, input, mode } = request.parse(JSON.parse(body));
    const text = input[0].parts[0].content;
    if (mode === "sync") {
      const run = await subject[agent_name](text);
      response.setHeader("content-type", "application/json");
      response.end(JSON.stringify({ status: run.status, output: [textMessage(run.output)] }));
      return;
    }
    response.setHeader("content-type", "text/event-stream");
    let id = 0;
    const show = (event) => response.write(`id: ${id++}\ndata: ${JSON.stringify(event)}\n\n`);
    const run = await subject.stream(Number(text), (content) => show({ type: "message.part", part: { content } }));
    show({ type: "run.completed", run: { status: run.status } });
    response.end();
  };
  return (incoming, response) => {
    const chunks = [];
    incoming.on("data", (chunk) => chunks.push(chunk));
    incoming.on("end", () => {
      answer(Buffer.concat(chunks).toString(), response).catch((error) => {
        response.statusCode = 500;
        response.end(String(error));
      });
    });
  };
}

function textMessage(texts) {
  return { role: "agent", parts: texts.map((content) => ({ content_type: "text/plain", content })) };
}
