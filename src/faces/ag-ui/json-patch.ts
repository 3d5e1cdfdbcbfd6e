import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { PatchOperation } from "./events.ts";

/** The operations of JSON Patch that make one value of another. A list that has changed is replaced as a whole. */
export function patchOf(before: JsonValue, after: JsonValue, path = ""): readonly PatchOperation[] {
  if (!isJsonObject(before) || !isJsonObject(after))
    return JSON.stringify(before) === JSON.stringify(after) ? [] : [{ op: "replace", path, value: after }];
  const patch: PatchOperation[] = [];
  for (const key of Object.keys(before))
    if (!Object.hasOwn(after, key)) patch.push({ op: "remove", path: `${path}/${pointer(key)}` });
  for (const [key, value] of Object.entries(after)) {
    const at = `${path}/${pointer(key)}`;
    if (Object.hasOwn(before, key)) patch.push(...patchOf((before as JsonObject)[key] as JsonValue, value, at));
    else patch.push({ op: "add", path: at, value });
  }
  return patch;
}

function pointer(key: string): string {
  return key.replaceAll("~", "~0").replaceAll("/", "~1");
}
