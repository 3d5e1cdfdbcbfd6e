import { useChat } from "@ai-sdk/react";
import { loadChat } from "cadenza/client";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

const id = new URLSearchParams(location.search).get("chat") ?? "refunds";

function Page({ chat }) {
  const [text, setText] = useState("");
  const { messages, sendMessage, addToolOutput, status, error, stop } = useChat(chat);
  const isBusy = status === "submitted" || status === "streaming";
  const send = (event) => {
    event.preventDefault();
    void sendMessage({ text });
    setText("");
  };
  return (
    <>
      <ol>
        {messages.map((message) => (
          <li key={message.id} data-role={message.role}>
            {message.parts.map((part, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: parts are only added.
              <Part key={index} part={part} answer={addToolOutput} isBusy={isBusy} />
            ))}
          </li>
        ))}
      </ol>
      {error !== undefined && <p role="alert">{error.message}</p>}
      <form onSubmit={send}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} />
        <button type="submit">Send</button>
        {isBusy && (
          <button type="button" id="stop" onClick={stop}>
            Stop
          </button>
        )}
      </form>
      <p id="status">{status}</p>
    </>
  );
}

/** While a chat gets a response, as after a reload, it takes no answer. */
function Part({ part, answer, isBusy }) {
  if (part.type === "text") return <span>{part.text}</span>;
  if (part.type !== "dynamic-tool" || part.toolName !== "ask") return null;
  const { toolCallId, input, state, output } = part;
  const say = (approved) => answer({ tool: "ask", toolCallId, output: { approved } });
  return (
    <fieldset>
      <legend>{input.question}</legend>
      {state === "input-available" ? (
        <>
          <button type="button" id="yes" disabled={isBusy} onClick={() => say(true)}>
            Yes
          </button>
          <button type="button" id="no" disabled={isBusy} onClick={() => say(false)}>
            No
          </button>
        </>
      ) : (
        <em>{output?.approved ? "Yes" : "No"}</em>
      )}
    </fieldset>
  );
}

/** What the run does right: no model call that has ended is made again, and there is one refund. */
function Facts() {
  const [facts, setFacts] = useState({ modelCalls: 0, again: 0, refunds: 0 });
  useEffect(() => {
    const read = () =>
      fetch("/facts")
        .then((response) => response.json())
        .then(setFacts, () => undefined);
    const timer = setInterval(read, 500);
    return () => clearInterval(timer);
  }, []);
  return (
    <aside>
      <p>
        Model calls: <b id="calls">{facts.modelCalls}</b>, of these again: <b id="again">{facts.again}</b>, refunds:{" "}
        <b id="refunds">{facts.refunds}</b>
      </p>
      <button
        type="button"
        id="kill"
        style={{ background: "#c00", color: "#fff" }}
        onClick={() => fetch("/kill", { method: "POST" })}
      >
        kill -9
      </button>
    </aside>
  );
}

const chat = await loadChat({ api: "/chat/desk", id, attempts: 20 });
createRoot(document.getElementById("page")).render(
  <>
    <Page chat={chat} />
    <Facts />
  </>,
);
