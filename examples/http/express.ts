/** On Express 5, below a path, and with `req.user` as the tenant. `npx tsx examples/http/express.ts` */
import { AgentRuntime } from "cadenza";
import { createAcpNodeListener } from "cadenza/http";
import express from "express";

const runtime = new AgentRuntime();
runtime.register("echo", async function* (input) {
  yield* input;
});

const app = express();
app.use((request, _response, next) => {
  Object.assign(request, { user: { team: "blue" } }); // the work of your login
  next();
});
app.use(
  "/acp",
  createAcpNodeListener(runtime, {
    authorize: ({ request }) => ({ tenant: (request as { user: { team: string } }).user.team }),
  }),
);
const server = app.listen(Number(process.env["PORT"] ?? 8000));

// Runs end before the process does.
process.once("SIGTERM", () => {
  server.close();
  void runtime.close();
});
