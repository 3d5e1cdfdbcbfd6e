import { createClient } from "cadenza/client";
import { useRun } from "cadenza/client/react";

const client = createClient({ url: "http://localhost" });
export const useEcho = (run_id: string) => useRun(client.attach("echo", run_id));
