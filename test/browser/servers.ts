import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { createInterface } from "node:readline";

/** The examples use their own models, also where there are keys for others. */
export const noKeys = { AI_GATEWAY_API_KEY: "", ANTHROPIC_API_KEY: "", OPENAI_API_KEY: "" };

/** Starts an example with a page. Resolves with the address that it prints when it listens. */
export async function startExample(
  file: string,
  port: string,
  ...others: readonly string[]
): Promise<[server: ChildProcess, address: string]> {
  const program = ["--import", "tsx", `examples/${file}`, port, ...others];
  const server = spawn(process.execPath, program, {
    env: { ...process.env, ...noKeys },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const lines = createInterface({ input: server.stdout as NonNullable<ChildProcess["stdout"]> });
  const [line] = (await once(lines, "line")) as [string];
  return [server, new URL(line).origin];
}

export async function freePort(): Promise<string> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as AddressInfo;
  probe.close();
  return `${port}`;
}
