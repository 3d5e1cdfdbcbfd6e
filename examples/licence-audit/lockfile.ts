import { readFile } from "node:fs/promises";
import { AgentError } from "cadenza";
import * as z from "zod";

/** A package in the lock file. */
export interface LockedPackage {
  /** Where it is installed, relative to the folder of the lock file. */
  readonly path: string;
  readonly name: string;
  /** An SPDX expression, or other text of its author. */
  readonly licence: string;
}

/** The name for a licence that the lock file does not have. */
export const UNKNOWN = "unknown";

const legacyLicence = z.object({ type: z.string() });
const lockedSchema = z.object({
  name: z.string().optional(),
  license: z.union([z.string(), legacyLicence, z.array(z.union([z.string(), legacyLicence]))]).optional(),
  /** Whether it is a link to a workspace. The linked folder has an entry of its own. */
  link: z.boolean().optional(),
  resolved: z.string().optional(),
});
type Locked = z.infer<typeof lockedSchema>;

const lockfileSchema = z.object({
  lockfileVersion: z.number(),
  packages: z.record(z.string(), lockedSchema).optional(),
});

/** Reads a `package-lock.json` of npm 7 or newer. Throws an `AgentError` for a file that is missing or invalid. */
export async function readLockfile(path: string): Promise<readonly LockedPackage[]> {
  const { lockfileVersion, packages } = parseLockfile(path, await readText(path));
  if (packages === undefined) {
    throw new AgentError(
      "invalid_input",
      `${path} is of version ${lockfileVersion} and names no licences. npm 7 or newer writes one that does.`,
    );
  }
  return Object.entries(packages)
    .filter(([folder]) => folder !== "")
    .map(([folder, locked]) => ({
      path: folder,
      name: locked.name ?? nameOf(folder),
      licence: licenceOf(locked.link === true ? (packages[locked.resolved ?? ""] ?? locked) : locked),
    }))
    .sort((a, b) => (a.path < b.path ? -1 : 1));
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (codeOf(error) === "ENOENT") throw new AgentError("not_found", `There is no file ${path}.`);
    throw new AgentError("invalid_input", `${path} cannot be read (${codeOf(error)}).`);
  }
}

function parseLockfile(path: string, text: string): z.infer<typeof lockfileSchema> {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new AgentError("invalid_input", `${path} is not JSON: ${error instanceof Error ? error.message : error}`);
  }
  const reading = lockfileSchema.safeParse(json);
  if (reading.success) return reading.data;
  throw new AgentError("invalid_input", `${path} is not a package-lock.json:\n${z.prettifyError(reading.error)}`);
}

/** `node_modules/a/node_modules/@b/c` is `@b/c`. */
function nameOf(folder: string): string {
  return folder.split("node_modules/").at(-1) || folder;
}

function licenceOf({ license }: Locked): string {
  const licences = (Array.isArray(license) ? license : [license]).map((one) =>
    (typeof one === "object" ? one.type : (one ?? "")).trim(),
  );
  return licences.join(" OR ") || UNKNOWN;
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "unknown error";
}
