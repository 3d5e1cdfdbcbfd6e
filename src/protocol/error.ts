import * as z from "zod";
import { omitAbsent } from "./absent.ts";
import { jsonObjectSchema } from "./json.ts";
import { deferred } from "./registry.ts";

const errorObject = deferred({ id: "Error", description: "Why a run failed or a request was refused." }, () =>
  z
    .object({
      code: z.enum(["server_error", "invalid_input", "not_found"]),
      message: z.string(),
      /** What a program may want to know beyond the code, for example `reason`. */
      data: jsonObjectSchema.nullish(),
    })
    .transform(omitAbsent("data")),
);

/** An error on the wire (ACP 1.0). */
export interface ProtocolError extends Readonly<z.output<typeof errorObject>> {}

/** The codes of ACP 1.0; its clients know no others. */
export type ErrorCode = ProtocolError["code"];

/** Reads a {@link ProtocolError}. */
export const errorSchema: z.ZodType<ProtocolError, z.input<typeof errorObject>> = errorObject;
