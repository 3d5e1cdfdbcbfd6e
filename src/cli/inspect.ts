import { stdout } from "node:process";
import { createInspectorNodeListener } from "cadenza/inspector";
import { addressOf, listen, newToken, openPage, stopped } from "./server.ts";
import { openToRead } from "./stores.ts";

/** The options of `inspect`. */
interface InspectOptions {
  readonly port: number;
  readonly schema?: string | undefined;
  readonly open: boolean;
  /** The run that the page shows first. Default: the list of runs. */
  readonly run_id?: string | undefined;
}

/** `cadenza inspect`: shows a store until the process is told to stop. */
export async function inspect(address: string, { port, schema, open, run_id }: InspectOptions): Promise<void> {
  const { store, name, close } = await openToRead(address, schema);
  try {
    const token = newToken();
    const server = await listen(createInspectorNodeListener({ store }, { token }), port);
    const url = `${addressOf(server.port, token)}${run_id === undefined ? "" : `#/run//${run_id}`}`;
    stdout.write(`${name}, read-only: ${url}\n`);
    const cleanUp = open ? openPage(url) : undefined;
    await stopped();
    cleanUp?.();
    await server.close();
  } finally {
    await close();
  }
}
