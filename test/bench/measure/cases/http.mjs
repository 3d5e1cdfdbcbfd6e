import { equal } from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { Agent, request } from "node:http";
import { checkedStream, checkRun } from "../checks.mjs";
import { rateAtOnce, rateOf } from "../rates.mjs";
import { resultOf, textMessage } from "../subjects/agents.mjs";

const WIDTH = 50;
const PARTS = 1_000;
const STREAMS = 10;

/** Runs and streams over HTTP: the server is another process, and connections are kept. */
export async function measureHttp(name, scale) {
  const child = fork(new URL("../http/server.mjs", import.meta.url), [name], {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const [port] = await once(child, "message");
  const subject = client(port);
  const one = async (index) => checkRun(await subject.echo(`hello ${index}`), `hello ${index}`);
  const stream = () => checkedStream(subject, PARTS);
  const part = scale === "quick" ? 20 : 1000;
  await rateAtOnce(WIDTH, 1.5 * part, one);
  const requests = await rateAtOnce(WIDTH, 1.5 * part, one);
  await rateOf(0.5 * part, stream);
  const alone = PARTS * (await rateOf(part, stream));
  const together = PARTS * (await rateAtOnce(STREAMS, part, stream));
  child.disconnect();
  return { requests, "one stream": alone, "ten streams": together };
}

function client(port) {
  const agent = new Agent({ keepAlive: true, maxSockets: WIDTH });
  const post = async (agent_name, text, mode) => {
    const body = JSON.stringify({ agent_name, input: [textMessage("user", text)], mode });
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
    const outgoing = request({ agent, port, host: "127.0.0.1", path: "/runs", method: "POST", headers });
    outgoing.end(body);
    const [response] = await once(outgoing, "response");
    equal(response.statusCode, 200);
    return response.setEncoding("utf8");
  };
  return {
    echo: async (text) => {
      let said = "";
      for await (const chunk of await post("echo", text, "sync")) said += chunk;
      return resultOf(JSON.parse(said));
    },
    stream: async (count, onPart) => {
      let status;
      for await (const event of eventsOf(await post("stream", String(count), "stream"))) {
        if (event.type === "message.part") onPart(event.part.content);
        else if (event.type === "run.completed") status = event.run.status;
      }
      return { status };
    },
  };
}

async function* eventsOf(response) {
  let rest = "";
  for await (const chunk of response) {
    const blocks = (rest + chunk).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").find((line) => line.startsWith("data:"));
      if (data !== undefined) yield JSON.parse(data.slice("data:".length));
    }
  }
}
