import * as z from "zod";
import { deferred } from "./registry.ts";

const uuidPattern = /^(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$/;

/**
 * Identifier of a run (ACP 1.0): a UUID of any version, in upper or lower case, with or without dashes. It is read as
 * lower case with dashes.
 */
export const runIdSchema: z.ZodType<string, string> = deferred(
  { id: "RunId", description: "Identifier of a run.", format: "uuid" },
  uuidSchema,
);

/** Identifier of a session (ACP 1.0); read in the same way as the identifier of a run. */
export const sessionIdSchema: z.ZodType<string, string> = deferred(
  { id: "SessionId", description: "Identifier of a session.", format: "uuid" },
  uuidSchema,
);

function uuidSchema() {
  return z
    .string()
    .regex(uuidPattern, "expected a UUID")
    .transform((text) =>
      text
        .toLowerCase()
        .replaceAll("-", "")
        .replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-"),
    );
}
