"use client";
import { useChat } from "@ai-sdk/react";
import { chatOptions } from "cadenza/client";
import { useState } from "react";

// biome-ignore lint/style/noDefaultExport: Next.js asks for it.
export default function Chat() {
  const [text, setText] = useState("");
  const [id] = useState(() => crypto.randomUUID());
  const [options] = useState(() => chatOptions({ api: "/api/chat/echo", id }));
  const { messages, sendMessage, addToolOutput, status, error, stop } = useChat(options);
  const isBusy = status === "submitted" || status === "streaming";
  const send = (event) => {
    event.preventDefault();
    void sendMessage({ text });
    setText("");
  };
  return (
    <form onSubmit={send}>
      {messages.map((message) => (
        <p key={message.id}>
          {message.role}: {message.parts.map((part, index) => show(part, index, addToolOutput))}
        </p>
      ))}
      {error !== undefined && <p role="alert">{error.message}</p>}
      <input value={text} onChange={(event) => setText(event.target.value)} />
      {isBusy ? (
        <button type="button" onClick={stop}>
          Stop
        </button>
      ) : (
        <button type="submit">Send</button>
      )}
    </form>
  );
}

/** A question is answered with yes or no here. Any other one is answered by the next message. */
function show(part, index, addToolOutput) {
  if (part.type === "text") return part.text;
  if (part.type === "dynamic-tool" && part.toolName === "ask") {
    const answer = (approved) => addToolOutput({ tool: "ask", toolCallId: part.toolCallId, output: { approved } });
    return (
      <strong key={index}>
        {part.input.question}
        {part.state === "input-available" && part.input.kind === "approval" && (
          <>
            <button type="button" onClick={() => answer(true)}>
              Yes
            </button>
            <button type="button" onClick={() => answer(false)}>
              No
            </button>
          </>
        )}
      </strong>
    );
  }
  if (part.type !== "file") return null;
  const isImage = part.mediaType.startsWith("image/");
  return isImage ? (
    <img key={index} src={part.url} alt="" />
  ) : (
    <a key={index} href={part.url} download>
      {part.mediaType}
    </a>
  );
}
