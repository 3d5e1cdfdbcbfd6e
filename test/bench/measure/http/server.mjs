/**
 * Serves a subject over HTTP on a free port, in a process of its own: `server.mjs <subject>`. The port is sent to the
 * process that has forked it.
 */
import { createServer } from "node:http";
import { openCadenza } from "../subjects/cadenza.mjs";
import { library } from "../subjects/library.mjs";
import { listenerByHand } from "./floor.mjs";

const listeners = {
  "bare-duties": listenerByHand,
  cadenza: async () => {
    const { createAcpNodeListener } = await import(library.replace(/index(\.m?js)$/, "http$1"));
    return createAcpNodeListener(openCadenza().runtime);
  },
};

const server = createServer(await listeners[process.argv[2]]());
server.keepAliveTimeout = 60_000;
server.listen(0, "127.0.0.1", () => process.send(server.address().port));
process.on("disconnect", () => process.exit(0));
