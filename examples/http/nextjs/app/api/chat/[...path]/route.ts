/** The agents for pages with `useChat`: `/api/chat/echo`, … */
import { createChatHandler } from "cadenza/ai-sdk";
import { runtime } from "../../../../runtime.ts";

const handler = createChatHandler(runtime, { basePath: "/api/chat" });

export { handler as DELETE, handler as GET, handler as POST };
