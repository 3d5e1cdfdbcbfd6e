import { useRun } from "cadenza/client/react";
import { useMemo, useState } from "react";
import { createRoot } from "react-dom/client";
import { clientOf } from "./client.ts";
import { SchemaForm } from "./schema-form.jsx";

// The address says who is signed in and which run is shown, so that a reload shows it again.
const address = new URLSearchParams(location.search);
const client = clientOf(address.get("user") ?? "ada");

function Page() {
  const [runId, setRunId] = useState(address.get("run"));
  const [text, setText] = useState("");
  const run = useMemo(() => (runId === null ? null : client.attach("concierge", runId)), [runId]);
  const { state, questions, error, answer, decline, stop } = useRun(run);
  const begin = async (event) => {
    event.preventDefault();
    const { run_id } = await client.run("concierge", { text });
    address.set("run", run_id);
    history.replaceState(null, "", `?${address}`);
    setRunId(run_id);
  };
  const isOpen = run !== null && ["created", "in-progress", "awaiting"].includes(state.status);
  return (
    <>
      <form onSubmit={begin}>
        <input aria-label="Wish" name="wish" value={text} onChange={(event) => setText(event.target.value)} />
        <button type="submit">Send</button>
        {isOpen && (
          <button type="button" id="stop" onClick={stop}>
            Stop
          </button>
        )}
      </form>
      <p id="answer">{state.text}</p>
      <ul>
        {state.subRuns.map(({ agent_name, run_id }) => (
          <Colleague key={run_id} name={agent_name} runId={run_id} />
        ))}
      </ul>
      {questions.map((question) => (
        <Question key={question.await_id} question={question} error={error} answer={answer} decline={decline} />
      ))}
      {error !== null && (
        <p id="error" role="alert">
          {error.message}
        </p>
      )}
      <p id="status">{run === null ? "ready" : state.status}</p>
    </>
  );
}

/** What a sub-run says while it is at work. */
function Colleague({ name, runId }) {
  const run = useMemo(() => client.attach(name, runId), [name, runId]);
  const { state } = useRun(run);
  return (
    <li id={name}>
      {name} ({state.status}): <span>{state.text}</span>
    </li>
  );
}

/** A question with a form that is made of its schema. */
function Question({ question, error, answer, decline }) {
  const { await_id, message } = question;
  const [said, schema] = useMemo(() => {
    const texts = message.parts.filter(({ content_type }) => content_type === "text/plain");
    const found = message.parts.find(({ content_type }) => content_type === "application/schema+json");
    return [texts.map(({ content }) => content).join(""), JSON.parse(found?.content ?? "{}")];
  }, [message]);
  return (
    <fieldset>
      <legend>{said}</legend>
      <SchemaForm schema={schema} issues={error?.issues ?? []} onSubmit={(value) => answer({ await_id }, value)}>
        <button type="submit" id="reply">
          Answer
        </button>
        <button type="button" id="decline" onClick={() => decline({ await_id }, { reason: "No time." })}>
          Decline
        </button>
      </SchemaForm>
    </fieldset>
  );
}

createRoot(document.getElementById("page")).render(<Page />);
