import { expect, it } from "vitest";
import { GET } from "../../examples/http/nextjs/app/api/agents/[...path]/route.ts";
import { POST } from "../../examples/http/nextjs/app/api/chat/[...path]/route.ts";

it("the routes of Next.js serve agents, runs and chat pages", async () => {
  const agents = await GET(new Request("http://next.test/api/agents/agents"));
  expect(await agents.json()).toMatchObject({ agents: [{ name: "echo" }] });
  const message = { id: "m1", role: "user", parts: [{ type: "text", text: "a b" }] };
  const body = JSON.stringify({ id: "chat", messages: [message], trigger: "submit-message" });
  const init = { method: "POST", headers: { "content-type": "application/json" }, body };
  const response = await POST(new Request("http://next.test/api/chat/echo", init));
  expect(await response.text()).toContain('"delta":"b"');
});
