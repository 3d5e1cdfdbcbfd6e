import { defineAgent } from "cadenza";
import { z } from "zod";
import { wideSchema } from "../harness/wide-schema.ts";

/** Whether the bank of `refund` answers. */
export const bank = { isOpen: true };

/** Has steps, a question with a form, and a step that fails while the bank is closed. */
export const refund = defineAgent(
  "refund",
  { durable: true, version: "1", description: "Refunds an order." },
  async function* (_input, { ask, step }) {
    yield "Looking at the order. ";
    await step("plan", () => ({ way: "bank" }));
    const { note } = await ask("Refund 40 €?", {
      schema: z.object({ note: z.string().min(3, "too short to be understood"), urgent: z.boolean() }),
    });
    await step("pay", () => {
      if (!bank.isOpen) throw new TypeError("The bank is closed.");
      return "paid";
    });
    yield `Paid: ${note}.`;
  },
);

/** Works until it is told to stop. */
export const slow = defineAgent("slow", { durable: true }, async function* (_input, { step, receive }) {
  yield "at work ";
  const stop = receive("stop").then(() => true);
  for (;;) {
    await step("work", () => new Promise((resolve) => setTimeout(resolve, 1_000)));
    if (await Promise.race([stop, step("look", () => false)])) return "stopped";
  }
});

/** Speaks a piece at a time. */
export const chatter = defineAgent("chatter", async function* (input, { signal }) {
  for (const word of ["You ", "said ", "this: "]) {
    yield word;
    await new Promise((resolve) => setTimeout(resolve, 50));
    signal.throwIfAborted();
  }
  yield* input;
});

/** Schemas of which a form never ends, or is larger than a page. */
const endless: readonly unknown[] = [
  {
    type: "object",
    properties: { name: { type: "string" }, parent: { $ref: "#" }, mother: { $ref: "#" } },
    required: ["name", "parent", "mother"],
  },
  { anyOf: [{ $ref: "#" }, { type: "string" }] },
  { type: "object", properties: { broken: { $ref: "#/$defs/100%" }, number: { $ref: 7 } }, required: ["broken"] },
  { $ref: "#" },
  wideSchema(8),
];

/** Asks questions whose schemas contain themselves. */
export const endlessly = defineAgent("endlessly", async (_input, { ask }) => {
  const asked = endless.map((schema, index) =>
    ask({
      parts: [
        { content: `Endless ${index}?` },
        { content_type: "application/schema+json", content: JSON.stringify(schema) },
      ],
    }),
  );
  return JSON.stringify(await Promise.all(asked));
});

const script = "window.attacked=(window.attacked??0)+1";

/** Two hundred texts that run as script, or fetch something, where a page takes text for markup. */
export const hostileTexts: readonly string[] = [
  `<script>${script}</script>`,
  `<img src=x onerror="${script}">`,
  `<svg onload="${script}">`,
  `"><script>${script}</script>`,
  `'><img src=x onerror='${script}'>`,
  `javascript:${script}`,
  `<a href="javascript:${script}">click</a>`,
  `<iframe srcdoc="<script>parent.${script}</script>"></iframe>`,
  `</style><script>${script}</script>`,
  `</script><script>${script}</script>`,
  `<style>@import url(https://attacker.example/s.css)</style>`,
  `<img src="https://attacker.example/i.png">`,
  `<link rel=stylesheet href=https://attacker.example/l.css>`,
  `<base href="https://attacker.example/">`,
  `<form action=https://attacker.example><button autofocus onfocus="${script}">`,
  `{{constructor.constructor('${script}')()}}`,
  `\${${script}}`,
  `<math><mtext></form><form><mglyph><style></math><img src onerror=${script}>`,
  `<details open ontoggle="${script}">`,
  `\u202e<script>${script}</script>\u0000\ud800`,
].flatMap((text) => [
  text,
  text.toUpperCase().replace("WINDOW.ATTACKED=(WINDOW.ATTACKED??0)+1", script),
  ` ${text}`,
  `${text}\n${text}`,
  `<p>${text}</p>`,
  `<!--${text}-->`,
  `"${text}"`,
  encodeURIComponent(text.replaceAll("\ud800", "")),
  text.replaceAll("<", "&lt;"),
  `__proto__ ${text}`,
]);

/** Puts a text of its input into every place that an agent can fill. */
export const hostile = defineAgent("hostile", { durable: true }, async function* (input, context) {
  const [message] = input;
  for (const text of JSON.parse(message?.parts[0]?.content ?? "[]") as readonly string[]) {
    yield text;
    yield { [text]: { [text]: [text] } };
    await context.step(text.slice(0, 60), () => ({ [text]: text }));
    await context.step("fails", () => Promise.reject(Object.assign(new Error(text), { name: text }))).catch(() => {});
  }
  const texts = JSON.parse(message?.parts[0]?.content ?? "[]") as readonly string[];
  const [first = "", second = ""] = texts;
  await context.ask(first, {
    schema: z
      .object(Object.fromEntries(texts.map((text) => [text, z.enum([text, "b"]).describe(text).default(text)])))
      .describe(second),
  });
});
