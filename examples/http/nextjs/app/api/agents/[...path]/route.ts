/** The whole interface as one route of Next.js: `/api/agents/runs`, `/api/agents/agents/echo`, … */
import { createAcpHandler } from "cadenza/http";
import { runtime } from "../../../../runtime.ts";

const handler = createAcpHandler(runtime, { basePath: "/api/agents" });

export { handler as GET, handler as POST };
