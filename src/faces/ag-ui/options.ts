import type { FaceOptions, FaceSettings } from "../../http/options.ts";
import { readFaceOptions } from "../../http/options.ts";
import { chatLimits } from "../chat/chat.ts";

/** How agents are served to AG-UI hosts. Every property may be left out. */
export interface AgUiOptions extends FaceOptions {}

/** Reads the options of a handler. Throws `invalid_argument` for an invalid one. */
export function readAgUiOptions(options: AgUiOptions): FaceSettings {
  return readFaceOptions(options, [], chatLimits);
}
