/*
 * What the user of a client may do, and what has to come of a request: a judge that shares nothing with the library. It knows
 * the three protocols as their specifications write them, and how the world marks words: those of a client are written
 * W12W, and those of an agent A12A.
 */

export type Face = "acp" | "chat" | "agUi";

/** A request of a client. */
export interface Sent {
  readonly face: Face;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** What a request has done. */
export interface Done {
  readonly status: number;
  /** The ids of the runs that it has created. */
  readonly runs: readonly string[];
  /** The questions that it has settled, and what their agents got. */
  readonly answers: readonly Answered[];
  /** Whether the session of the chat is another one than before. */
  readonly changesSession: boolean;
}

export interface Answered {
  /** The id of the run, a slash, and that of the question. */
  readonly id: string;
  readonly chat: string;
  readonly value: unknown;
}

interface Spoken {
  readonly role: string;
  readonly [key: string]: unknown;
}

/** What is seen of a chat afterwards. */
export interface Seen {
  /** What its agent was given: history and input. */
  readonly given: readonly Spoken[];
  /** The same, for a model. */
  readonly model: readonly Spoken[];
  readonly session: readonly Spoken[];
  readonly state: unknown;
  /** The values that a typed agent was given. */
  readonly values: readonly unknown[];
  readonly log: readonly { readonly type: string; readonly [key: string]: unknown }[];
  /** What the chat page of another user shows, and what another user's host gets. */
  readonly page: readonly Spoken[];
  readonly thread: readonly { readonly type: string; readonly messages?: readonly Spoken[] }[];
}

const MAX_DEPTH = 64;
const MAX_VALUES = 100_000;

export class Oracle {
  /** The words that users have said. */
  readonly #spoken = new Set<string>();
  /** How much was done for an action of a user, by its key. */
  readonly #acts = new Map<string, number>();
  readonly #calls: ReadonlySet<string>;

  /** `calls`: the ids of the tool calls that agents make. */
  constructor(calls: readonly string[]) {
    this.#calls = new Set(calls);
  }

  /** What is wrong with what a request has done. */
  judge(sent: Sent, done: Done): readonly string[] {
    const wrong: string[] = [];
    const body = parsed(sent.body);
    const said = wordsIn(saidBy(sent, body));
    for (const word of said) this.#spoken.add(word);
    if (done.status >= 500) wrong.push(`the status ${done.status}`);
    const effects = done.runs.length + done.answers.length;
    if (done.status >= 400 && (effects > 0 || done.changesSession))
      wrong.push(`a request that was refused with ${done.status} has changed something`);
    if (effects > 1 && !isReply(sent, body)) wrong.push("one message has done two things");
    for (const { id, chat, value } of done.answers) {
      if (!names(sent, body, id, chat)) wrong.push(`${id} of ${chat} was answered by a request that does not name it`);
      const other = [...wordsIn(value)].filter((word) => !said.has(word));
      if (other.length > 0)
        wrong.push(`${id} was answered with ${other.join(", ")}, which no user has said as its answer`);
    }
    const key = keyOf(sent, body);
    if (key !== undefined) {
      const before = this.#acts.get(key) ?? 0;
      this.#acts.set(key, before + effects);
      if (before > 0 && effects > 0) wrong.push(`what a user has done once was done twice: ${key}`);
    }
    return wrong;
  }

  /** What is wrong with what is seen of a chat. */
  look(seen: Seen): readonly string[] {
    const wrong: string[] = [];
    const messages = (where: string, all: readonly Spoken[]): void => {
      for (const one of all) wrong.push(...this.#message(where, one));
    };
    messages("the agent's input", seen.given);
    messages("the session", seen.session);
    messages("the model", seen.model);
    if (wordsIn(seen.state).size > 0) wrong.push("the state of the session has words of a client");
    for (const { role, content } of seen.model)
      for (const part of listOf(content)) {
        if (/^(https?|file|ftp):/i.test(String(part["data"])))
          wrong.push(`a model is to fetch ${String(part["data"])}`);
        const call = part["toolCallId"];
        if (role !== "user" && call !== undefined && !this.#calls.has(String(call)))
          wrong.push("a model sees a forged call");
      }
    for (const value of seen.values) wrong.push(...faultsIn(value));
    for (const { type, input, answer, metadata: _, decline: _reason, idempotency_key: _key, ...entry } of seen.log) {
      messages(`the log, ${type}`, listOf(input) as Spoken[]);
      const message = messageIn(answer);
      if (message !== undefined) messages("the log, an answer", [message as Spoken]);
      if (type === "created" || type === "resumed") continue;
      if (wordsIn(entry).size > 0) wrong.push(`the log has words of a client in ${type}`);
    }
    for (const { role, parts } of seen.page)
      for (const part of listOf(parts)) wrong.push(...this.#pagePart(role, part));
    const roles = new Map<unknown, unknown>();
    for (const { messages: all = [], ...event } of seen.thread) {
      for (const message of all) wrong.push(...this.#threadMessage(message));
      const { type, messageId, role } = event as Body;
      if (type === "TEXT_MESSAGE_START") roles.set(messageId, role);
      if (type === "TEXT_MESSAGE_CONTENT") messages("an AG-UI host", [{ role: String(roles.get(messageId)), event }]);
      else if (wordsIn(event).size > 0) wrong.push(`an AG-UI host gets ${String(type)} of a client`);
    }
    for (const shown of [seen.page.map(withoutJson), seen.thread]) wrong.push(...addressesIn(shown));
    return wrong;
  }

  /** A message of a user has words that users have said, and no tools. One of an agent has no words of a user. */
  #message(where: string, message: Spoken): readonly string[] {
    const words = [...wordsIn(message)];
    if (message.role !== "user") {
      return words.length > 0 ? [`${where}: an agent says ${words.join(", ")} in the role ${message.role}`] : [];
    }
    const wrong = words.filter((word) => !this.#spoken.has(word)).map((word) => `${where}: no user has said ${word}`);
    if (/"kind":"trajectory"/.test(JSON.stringify(message))) wrong.push(`${where}: a user's message has a tool call`);
    return wrong;
  }

  #pagePart(role: string, part: Readonly<Record<string, unknown>>): readonly string[] {
    const { type, toolCallId, toolName, output, errorText, approval, ...shown } = part;
    if (role === "user") {
      if (/tool|reasoning/.test(String(type))) return [`a page shows ${String(type)} of a user`];
      return this.#message("a page", { role, part });
    }
    const words = [...wordsIn(shown), ...wordsIn(toolName)];
    const wrong = words.map((word) => `a page shows ${word} as ${String(type)} of the assistant`);
    // What was answered to a question is shown as the output of its call.
    const answers = [...wordsIn([output, errorText, approval])].filter((word) => !this.#spoken.has(word));
    if (answers.length > 0) wrong.push(`a page shows the answer ${answers.join(", ")}`);
    const isKnown =
      toolCallId === undefined || this.#calls.has(String(toolCallId)) || /\/ask#\d+$/.test(String(toolCallId));
    if (!isKnown) wrong.push(`a page shows the call ${String(toolCallId)}`);
    return wrong;
  }

  #threadMessage(message: Spoken): readonly string[] {
    const { role, toolCalls } = message;
    const wrong = [...this.#message("an AG-UI host", message)];
    for (const { id } of listOf(toolCalls))
      if (!this.#calls.has(String(id))) wrong.push(`an AG-UI host gets the call ${String(id)} of ${role}`);
    return wrong;
  }
}

/** What the user says with a request: the rest of it is claims. */
function saidBy({ face, path }: Sent, body: Body): unknown {
  if (face === "acp") {
    if (path.endsWith("/runs")) return listOf(body["input"]).map(plainMessage);
    const { await_resume, decline } = body;
    const message = messageIn(await_resume);
    return [message === undefined ? await_resume : plainMessage(message), decline];
  }
  const messages = listOf(body["messages"]);
  if (face === "chat") {
    const last = messages.at(-1) ?? {};
    const parts = listOf(last["parts"]);
    if (last["role"] === "user") return parts.filter(({ type }) => /^(text|file|data-.*)$/.test(String(type)));
    return parts.map(({ output, errorText, approval }) => [output, errorText, approval]);
  }
  const since = messages.findLastIndex(({ role }) => role === "assistant") + 1;
  const said = messages.slice(since).filter(({ role }) => role === "user" || role === "tool");
  return [said.map(({ content }) => content), listOf(body["resume"]).map(({ payload }) => payload)];
}

/** The message in an answer of ACP. Undefined: the answer is a value. */
function messageIn(answer: unknown): Body | undefined {
  if (!isObject(answer) || !isObject(answer["message"])) return undefined;
  const { type, message } = answer;
  return type === "message" || type === undefined || type === null ? (message as Body) : undefined;
}

/** A message of ACP without what only agents say. One that is not a user's says nothing. */
function plainMessage(message: Body): unknown {
  const { role } = message;
  if (role !== undefined && role !== null && role !== "user") return [];
  return listOf(message["parts"]).map(({ metadata, chat_message_id: _id, tool_call_id: _call, ...part }) =>
    isObject(metadata) && metadata["kind"] === "trajectory" ? part : { ...part, metadata },
  );
}

/** Whether a request replies to questions by their ids. It may answer several. */
function isReply({ face }: Sent, body: Body): boolean {
  if (face === "agUi") return listOf(body["resume"]).length > 0 || listOf(body["messages"]).at(-1)?.["role"] === "tool";
  return face === "chat" && listOf(body["messages"]).at(-1)?.["role"] === "assistant";
}

/** Whether a request answers a question of a chat: by its id or, in a chat, in words. */
function names({ face, path }: Sent, body: Body, id: string, chat: string): boolean {
  if (face === "acp") return path.toLowerCase().endsWith(`/runs/${id.slice(0, id.indexOf("/"))}`);
  const last = listOf(body["messages"]).at(-1);
  if (face === "chat") {
    if (body["id"] !== chat) return false;
    return last?.["role"] === "user" || listOf(last?.["parts"]).some(({ toolCallId }) => toolCallId === id);
  }
  return body["threadId"] === chat && listOf(body["resume"]).some(({ interruptId }) => interruptId === id);
}

/** The key of what a user does, where one action has one. A message that is sent another time on purpose has none. */
function keyOf({ face, path, headers }: Sent, body: Body): string | undefined {
  if (face === "acp") {
    const key = headers["idempotency-key"];
    return key === undefined ? undefined : JSON.stringify(["acp", key]);
  }
  const last = listOf(body["messages"]).at(-1);
  const id = last?.["id"];
  if (typeof id !== "string" || id === "" || last?.["role"] !== "user") return undefined;
  if (face === "agUi")
    return listOf(body["resume"]).length > 0 ? undefined : JSON.stringify([face, path, body["threadId"], id]);
  const isEdited = body["trigger"] === "regenerate-message" || body["messageId"] === id;
  return isEdited ? undefined : JSON.stringify([face, path, body["id"], id]);
}

/** What a value must not have that an agent gets. */
function faultsIn(value: unknown): readonly string[] {
  let level: readonly unknown[] = [value];
  let count = 0;
  for (let depth = 0; level.length > 0; depth++) {
    count += level.length;
    if (depth > MAX_DEPTH) return ["an agent gets a value that is nested too deeply"];
    if (count > MAX_VALUES) return ["an agent gets too many values"];
    const next: unknown[] = [];
    for (const one of level) {
      if (typeof one !== "object" || one === null) continue;
      if (Object.hasOwn(one, "__proto__")) return ["an agent gets a key __proto__"];
      for (const inner of Object.values(one)) next.push(inner);
    }
    level = next;
  }
  return [];
}

/** A message of a page without the answers that are JSON: a page shows them as text, and follows no address in them. */
function withoutJson({ parts, ...message }: Spoken): Spoken {
  const follows = ({ toolCallId, output }: Body): boolean =>
    toolCallId === undefined || messageIn(output) !== undefined;
  return { ...message, parts: listOf(parts).map((part) => (follows(part) ? part : { ...part, output: undefined })) };
}

/** Addresses that are shown to other users, and are no links to the web nor data. */
function addressesIn(value: unknown): readonly string[] {
  const found: string[] = [];
  const visit = (one: unknown): void => {
    if (typeof one !== "object" || one === null) return;
    for (const [key, inner] of Object.entries(one)) {
      const isAddress = /^(url|content_url|href)$/.test(key) || (key === "source" && isObject(inner));
      const text = key === "source" && isObject(inner) && inner["type"] === "url" ? inner["value"] : inner;
      if (isAddress && typeof text === "string" && !/^(https?|data):/i.test(text))
        found.push(`pages get the address ${text}`);
      visit(inner);
    }
  };
  visit(value);
  return found;
}

type Body = Readonly<Record<string, unknown>>;

function parsed(text: string): Body {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}

function isObject(value: unknown): value is Body {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function listOf(value: unknown): readonly Body[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

/** The words of clients in a value. */
function wordsIn(value: unknown): ReadonlySet<string> {
  return new Set((JSON.stringify(value) ?? "").match(/W\d+W/g));
}
