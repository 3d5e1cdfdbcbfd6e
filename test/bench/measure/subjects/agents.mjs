/** The agents of the floors and of the library. Both execute the same functions. */
export const agents = {
  async *echo(input) {
    yield textPart(textOf(input));
  },
  async *later(input) {
    await new Promise(setImmediate);
    yield textPart(textOf(input));
  },
  async *stream(input) {
    const count = Number(textOf(input));
    for (let i = 0; i < count; i++) yield textPart(`part ${i}`);
  },
  async *asks(input) {
    const answer = yield { type: "message", message: textMessage("agent", textOf(input)) };
    yield textPart(textOf([answer.message]));
  },
};

/** A message of one part. */
export function textMessage(role, text) {
  return { role, parts: [textPart(text)] };
}

/** An answer as the protocol has it. */
export function textAnswer(text) {
  return { type: "message", message: textMessage("user", text) };
}

/** The status of a run, and the texts of its output. */
export function resultOf({ status, output }) {
  return { status, output: output.flatMap(({ parts }) => parts.map(({ content }) => content)) };
}

/** The text of the first part of the first message. */
export function textOf(messages) {
  return messages[0].parts[0].content;
}

function textPart(content) {
  return { content_type: "text/plain", content };
}
