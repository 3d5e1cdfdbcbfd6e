/** The agents as the page calls them. Of the server it has their types alone. */
import type { Client } from "cadenza/client";
import { createClient } from "cadenza/client";
import type { Agents } from "./agents.ts";

/** A client for one user. A server that is started again may take a while. */
export function clientOf(token: string): Client<Agents> {
  return createClient<Agents>({ url: "/agents", headers: { authorization: `Bearer ${token}` }, attempts: 20 });
}
