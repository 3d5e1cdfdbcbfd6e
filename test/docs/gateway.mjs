/* Loaded before a program of a page: the AI gateway's answers, without a network and without a key. */

const GATEWAY = "https://ai-gateway.vercel.sh/";
const elsewhere = globalThis.fetch;

/** What each model says. */
const answer = {
  content: [{ type: "text", text: "I advise to pay 40 €." }],
  finishReason: { unified: "stop", raw: "stop" },
  usage: { inputTokens: { total: 20 }, outputTokens: { total: 8 } },
  warnings: [],
};

globalThis.fetch = (resource, init) => {
  const { url, headers } = new Request(resource, { method: init?.method, headers: init?.headers });
  if (!url.startsWith(GATEWAY)) return elsewhere(resource, init);
  if (!url.endsWith("/language-model") || headers.get("ai-language-model-streaming") === "true")
    return Promise.reject(new Error(`The gateway of the tests does not know ${url}.`));
  return Promise.resolve(Response.json(answer));
};
