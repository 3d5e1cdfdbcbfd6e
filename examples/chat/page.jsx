import { useChat } from "@ai-sdk/react";
import { loadChat } from "cadenza/client";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { ServerCard, useServer } from "../server-card.jsx";

const id = new URLSearchParams(location.search).get("chat") ?? "refunds";
const WISHES = ["I want a refund for my train, please", "Tell me a long story"];

function Page({ chat, isAway }) {
  const [text, setText] = useState("");
  const { messages, sendMessage, addToolOutput, status, error, stop } = useChat(chat);
  // After a reload the chat begins to follow its run when the page has been shown once.
  const [isShown, setShown] = useState(false);
  useEffect(() => setShown(true), []);
  const isBusy = !isShown || status === "submitted" || status === "streaming";
  const send = (event) => {
    event.preventDefault();
    void sendMessage({ text });
    setText("");
  };
  return (
    <section aria-label="Chat">
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
      <form className="row" onSubmit={send}>
        <input
          aria-label="Message"
          placeholder="Ask for a refund, or for a long story"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <button type="submit">Send</button>
        {isBusy && (
          <button type="button" id="stop" onClick={stop}>
            Stop
          </button>
        )}
      </form>
      <div className="row">
        {WISHES.map((wish) => (
          <button type="button" key={wish} disabled={isBusy} onClick={() => sendMessage({ text: wish })}>
            {wish}
          </button>
        ))}
      </div>
      <p className="soft">
        {isAway ? "The page waits for its server. The chat is " : "The chat is "}
        <span id="status">{status}</span>.
      </p>
    </section>
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
          </button>{" "}
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
function Facts({ server: { answer: facts, isAway, timesAway } }) {
  // The server dies before it answers.
  const kill = () => fetch("/kill", { method: "POST" }).catch(() => undefined);
  return (
    <aside>
      <ServerCard
        isAway={isAway}
        up="End it in the middle of a word, or while the question waits. Nothing is saved on the way out."
        away="It was killed and is being started again. This page waits for it, and goes on by itself."
      >
        <p className="row">
          <button type="button" id="kill" className="danger" disabled={isAway} onClick={kill}>
            kill -9
          </button>
        </p>
      </ServerCard>
      <div className="card">
        <h2>What has really happened</h2>
        <dl>
          <dt>kills while this page was open</dt>
          <dd>{timesAway}</dd>
          <dt>model calls</dt>
          <dd id="calls">{facts.modelCalls}</dd>
          <dt>… of which were made again</dt>
          <dd id="again">{facts.again}</dd>
          <dt>refunds paid</dt>
          <dd id="refunds">{facts.refunds}</dd>
        </dl>
        <p>
          <b>A kill never pays twice.</b>
        </p>
        <p className="soft">It costs at most the model call that it cuts off, whose torn words leave the page.</p>
      </div>
    </aside>
  );
}

function App({ chat }) {
  const server = useServer("/facts", { modelCalls: 0, again: 0, refunds: 0 });
  return (
    <>
      <header>
        <h1>Refund desk</h1>
        <p className="soft">
          An agent that calls a model, asks you, and pays. Ask it for a refund, then kill its server.
        </p>
      </header>
      <Page chat={chat} isAway={server.isAway} />
      <Facts server={server} />
    </>
  );
}

const chat = await loadChat({ api: "/chat/desk", id, attempts: 20 });
createRoot(document.getElementById("page")).render(<App chat={chat} />);
