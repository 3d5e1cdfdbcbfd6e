"use client";
import { useChat } from "@ai-sdk/react";
import { useState } from "react";
import { agentTransport } from "./transport.ts";

// biome-ignore lint/style/noDefaultExport: Next.js asks for it.
export default function Chat() {
  const [text, setText] = useState("");
  const [id] = useState(() => crypto.randomUUID()); // the session id too
  const [transport] = useState(() => agentTransport("echo"));
  const { messages, sendMessage, status, error, stop } = useChat({ id, transport });
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
          {message.role}: {message.parts.map(show)}
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

/** A question with a schema is answered in JSON here. A real page would show a form. */
function show(part, index) {
  if (part.type === "text") return part.text;
  if (part.type === "data-question") return <strong key={index}>{part.data.text}</strong>;
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
