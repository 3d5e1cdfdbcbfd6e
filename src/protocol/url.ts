import * as z from "zod";
import { deferred } from "./registry.ts";

/** An absolute URL of any scheme, `data:` included. It stays the string that came. */
export const absoluteUrlSchema: z.ZodType<string, string> = deferred({ format: "uri" }, () =>
  z.string().refine((text) => URL.canParse(text), "expected an absolute URL"),
);

/** An absolute `http` or `https` URL. It stays the string that came. */
export const httpUrlSchema: z.ZodType<string, string> = deferred({ format: "uri" }, () =>
  z
    .string()
    .refine((text) => /^https?:\/\//i.test(text) && URL.canParse(text), "expected an absolute http or https URL"),
);
