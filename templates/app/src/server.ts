import { randomUUID } from "node:crypto";
import { createApp } from "./app.ts";
import { modelName } from "./model.ts";
import { openRuntime } from "./runtime.ts";

const port = Number(process.env.PORT ?? 3000);
const token = process.env.INSPECTOR_TOKEN || randomUUID();

// This process also executes runs. With workers beside it, `{ work: false }` leaves that to them.
const { runtime, close } = openRuntime();
const server = createApp(runtime, token);
server.listen(port, "127.0.0.1", () => {
  console.log(`Chat       http://localhost:${port}/`);
  console.log(`API        http://localhost:${port}/api/agents`);
  console.log(`Inspector  http://localhost:${port}/inspector/?token=${token}`);
  console.log(`Model      ${modelName}`);
});

for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, async () => {
    server.close();
    server.closeAllConnections();
    await close();
    process.exit();
  });
}
