import { useChat } from "@ai-sdk/react";
import * as sdk from "ai";
import { chatOptions, loadChat } from "cadenza/client";
import { createRoot } from "react-dom/client";
import { chatRows } from "./chat-rows.ts";

/* Two pages in one program: a chat in a frame, and without the parameter `chat` the page that does a row in such frames. */

const query = new URLSearchParams(location.search);
const id = query.get("chat");

/** What the stock transport needs for what `chatOptions` does by itself. */
async function stockOptions(api, headers) {
  let before = [];
  const prepareSendMessagesRequest = ({ id: chat, messages, trigger, messageId, body }) => {
    const ids = new Set(messages.map((message) => message.id));
    const takenBack = before.find((known) => !ids.has(known));
    const last = messages.at(-1);
    before = messages.map((message) => message.id);
    const named = last.role === "user" && takenBack !== undefined ? { messageId: takenBack } : { messageId };
    return { body: { ...body, id: chat, messages, trigger, ...named }, headers };
  };
  const takesBack = query.has("takesBack");
  // Version 5 has no approvals.
  const completes = Object.entries(sdk).filter(([name]) => name.startsWith("lastAssistantMessageIsCompleteWith"));
  const options = {
    id,
    transport: new sdk.DefaultChatTransport({ api, headers, ...(takesBack && { prepareSendMessagesRequest }) }),
    sendAutomaticallyWhen: (chat) => completes.some(([, isComplete]) => isComplete(chat)),
    onFinish: ({ messages = [] }) => {
      before = messages.map((message) => message.id);
    },
  };
  if (!query.has("isLoaded")) return options;
  const loaded = await (await fetch(`${api}/${encodeURIComponent(id)}/messages`)).json();
  before = loaded.messages.map((message) => message.id);
  return { ...options, messages: loaded.messages, resume: loaded.run_id !== null };
}

async function optionsOf() {
  const api = `/chat/${query.get("agent") ?? "desk"}`;
  // The server knows by it which connections are those of this chat.
  const headers = { "x-chat": id };
  if (query.get("transport") === "stock") return stockOptions(api, headers);
  const given = { api, id, headers };
  return query.has("isLoaded") ? loadChat(given) : chatOptions(given);
}

function Chat({ options }) {
  const chat = useChat({
    ...options,
    onData: (part) => window.data.push(part),
    onToolCall: ({ toolCall }) => {
      if (query.has("hasTools") && toolCall.toolName === "getLocation")
        void chat.addToolOutput({ tool: "getLocation", toolCallId: toolCall.toolCallId, output: { city: "Ulm" } });
    },
  });
  window.chat = { ...chat, isIdle: window.requests === 0 && !window.mayFollow };
  return null;
}

/** Counts the requests whose responses are not read to their ends. */
function countRequests() {
  const { fetch } = window;
  const end = () => {
    window.requests -= 1;
    if (window.chat !== undefined) window.chat = { ...window.chat, isIdle: window.requests === 0 };
  };
  window.requests = 0;
  window.fetch = async (...request) => {
    window.requests += 1;
    window.mayFollow = false;
    try {
      const response = await fetch(...request);
      response.clone().arrayBuffer().then(end, end);
      return response;
    } catch (error) {
      end();
      throw error;
    }
  };
}

/** Waits for the next turn until something is true. */
async function until(what, test) {
  const end = Date.now() + 40_000;
  while (!test()) {
    if (Date.now() > end) throw new Error(`It never came to: ${what()}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

class Tab {
  #url;
  #frame = document.createElement("iframe");

  constructor(url) {
    this.#url = url;
    document.body.append(this.#frame);
  }

  get chat() {
    return this.#frame.contentWindow.chat;
  }

  get data() {
    return this.#frame.contentWindow.data;
  }

  until = async (test) => {
    const shown = () => {
      const { status, error, messages } = this.chat;
      return `${test} — ${JSON.stringify({ status, error: error?.message, messages })}`;
    };
    await until(shown, () => test(this.chat));
  };

  async show() {
    this.#frame.src = this.#url;
    await until(
      () => `a page at ${this.#url}`,
      () => this.chat !== undefined,
    );
    return this;
  }

  reload = async () => {
    const url = `${this.#url}&isLoaded`;
    const { contentWindow: before } = this.#frame;
    before.chat = undefined;
    before.location.replace(url);
    await until(
      () => `a page at ${url}`,
      () => this.#frame.contentWindow.location.search.includes("&isLoaded") && this.chat !== undefined,
    );
  };

  close() {
    this.#frame.remove();
  }
}

/** Does a row, and resolves with what comes of it. */
async function doRow(index, version, transport) {
  const chat = `${index} ${transport}`;
  const tabs = [];
  const control = async (what) => (await fetch(`/${what}?chat=${encodeURIComponent(chat)}`)).json();
  const visit = {
    version,
    transport,
    open: async (options = {}) => {
      const parameters = new URLSearchParams({ chat, transport, agent: options.agent ?? "desk" });
      for (const [name, value] of Object.entries(options)) if (value === true) parameters.set(name, "");
      const tab = new Tab(`?${parameters}`);
      tabs.push(tab);
      return tab.show();
    },
    go: () => control("go"),
    cut: () => control("cut"),
    runs: () => control("runs"),
    stopRun: async () => {
      await fetch(`/chat/desk/${encodeURIComponent(chat)}/stream`, { method: "DELETE" });
    },
  };
  try {
    return (await chatRows[index].does(visit)) ?? "yes";
  } catch (error) {
    return `${error}`;
  } finally {
    for (const tab of tabs) tab.close();
  }
}

if (id === null) {
  window.doRow = doRow;
} else {
  window.data = [];
  countRequests();
  const options = await optionsOf();
  // The hook follows the open run after its first render.
  window.mayFollow = options.resume === true;
  createRoot(document.getElementById("page")).render(<Chat options={options} />);
}
