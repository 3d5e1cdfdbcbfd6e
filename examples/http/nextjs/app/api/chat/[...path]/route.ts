/** The agents for pages with `useChat`: `/api/chat/echo`, … */
import { createHandler } from "cadenza/ai-sdk";
import { runtime } from "../../../../runtime.ts";

const handler = createHandler(runtime, { basePath: "/api/chat" });

export { handler as DELETE, handler as GET, handler as POST };
