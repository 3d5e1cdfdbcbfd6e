import { stdout } from "node:process";
import { createInspectorNodeListener } from "cadenza/inspector";
import { addressOf, listen, newToken, openPage, stopped } from "./server.ts";
import { openToRead } from "./stores.ts";

/** The options of `inspect`. */
interface InspectOptions {
  readonly port: number;
  readonly schema?: string | undefined;
  readonly open: boolean;
}

/** `cadenza inspect`: shows a store until the process is told to stop. */
export async function inspect(address: string, { port, schema, open }: InspectOptions): Promise<void> {
  const { store, name, close } = await openToRead(address, schema);
  try {
    const token = newToken();
    const server = await listen(createInspectorNodeListener({ store }, { token }), port);
    const url = addressOf(server.port, token);
    stdout.write(`${name}, read-only: ${url}\n`);
    const cleanUp = open ? openPage(url) : undefined;
    await stopped();
    cleanUp?.();
    await server.close();
  } finally {
    await close();
  }
}
