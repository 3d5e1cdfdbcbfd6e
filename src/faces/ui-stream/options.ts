import type { HttpOptions, HttpSettings } from "../../http/options.ts";
import { bad, readHttpOptions } from "../../http/options.ts";
import type { Call } from "../../http/service.ts";
import { chatLimits } from "../chat/chat.ts";

/** How agents are served to chat pages. Every property may be left out. */
export interface ChatOptions extends HttpOptions {
  /**
   * Whether questions of the kind `approval` are shown as approvals of a tool, which pages answer with
   * `addToolApprovalResponse`. Clients of `ai` 5 do not know these. Default: false.
   */
  readonly approvals?: boolean | undefined;
}

/** The options with their defaults. */
export interface ChatSettings extends HttpSettings {
  readonly approvals: boolean;
}

/** A request of a chat page while it is answered. */
export type ChatCall = Call<ChatSettings>;

/** Reads the options of a handler. Throws `invalid_argument` for an invalid one. */
export function readChatOptions(options: ChatOptions): ChatSettings {
  const settings = readHttpOptions(options, ["approvals"], chatLimits);
  const { approvals = false } = options;
  if (typeof approvals !== "boolean") throw bad("approvals", "true or false");
  return { ...settings, approvals };
}
