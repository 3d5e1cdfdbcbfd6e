/** On NestJS 11, below a path. `npx tsx examples/http/nest.ts` */
import { Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { AgentRuntime } from "cadenza";
import { createAcpNodeListener } from "cadenza/http";

const runtime = new AgentRuntime();
runtime.register("echo", async function* (input) {
  yield* input;
});

class AppModule {}
Module({})(AppModule); // what the decorator @Module({}) does

const app = await NestFactory.create(AppModule);
// Nest adds its body parser in listen(). The service is mounted before that, and reads bodies itself.
app.use("/acp", createAcpNodeListener(runtime));
await app.listen(Number(process.env["PORT"] ?? 8000));

// Runs end before the process does.
process.once("SIGTERM", () => {
  void app.close();
  void runtime.close();
});
