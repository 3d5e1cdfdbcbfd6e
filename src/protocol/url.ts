import * as z from "zod";
import { deferred } from "./registry.ts";

const ABSOLUTE = "expected an absolute URL";
const HTTP = "expected an absolute http or https URL";

/** An absolute URL of any scheme, `data:` included. It stays the string that came. */
export const absoluteUrlSchema: z.ZodType<string, string> = deferred({ format: "uri" }, () =>
  z
    .string()
    .regex(/^\s*[A-Za-z][A-Za-z0-9+.-]*:/, { error: ABSOLUTE, abort: true })
    .refine((text) => URL.canParse(text), ABSOLUTE),
);

/** An absolute `http` or `https` URL. It stays the string that came. */
export const httpUrlSchema: z.ZodType<string, string> = deferred({ format: "uri" }, () =>
  z
    .string()
    .regex(/^[Hh][Tt][Tt][Pp][Ss]?:\/\//, { error: HTTP, abort: true })
    .refine((text) => URL.canParse(text), HTTP),
);
