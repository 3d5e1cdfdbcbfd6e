"use client";
import { useChat } from "@ai-sdk/react";
import { useState } from "react";
import { agentTransport } from "./transport.ts";

// biome-ignore lint/style/noDefaultExport: Next.js asks for it.
export default function Chat() {
  const [text, setText] = useState("");
  const [id] = useState(() => crypto.randomUUID()); // the chat's id is the session's
  const { messages, sendMessage } = useChat({ id, transport: agentTransport("echo") });
  const send = (event) => {
    event.preventDefault();
    void sendMessage({ text }).then(() => setText(""));
  };
  const lines = messages.map((message) => (
    <p key={message.id}>
      {message.role}: {message.parts.map((part) => part.text)}
    </p>
  ));
  const input = <input value={text} onChange={(event) => setText(event.target.value)} />;
  return <form onSubmit={send}>{[lines, input]}</form>;
}
