import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

/** Runs npm in the root of the project, and passes on what it prints. Rejects if it fails. */
export async function runNpm(...parameters: readonly string[]): Promise<void> {
  const child = spawn("npm", parameters, { cwd: ROOT, stdio: "inherit" });
  const [code] = await once(child, "exit");
  if (code !== 0) throw new Error(`npm ${parameters.join(" ")} ended with ${code}`);
}
