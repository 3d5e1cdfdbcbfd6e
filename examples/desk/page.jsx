import { useRun } from "cadenza/client/react";
import { useMemo, useState } from "react";
import { createRoot } from "react-dom/client";
import { ServerCard, useServer } from "../server-card.jsx";
import { clientOf } from "./client.ts";
import { SchemaForm } from "./schema-form.jsx";

// The address says who is signed in and which run is shown, so that a reload shows it again.
const address = new URLSearchParams(location.search);
const user = address.get("user") ?? "ada";
const stranger = user === "bob" ? "ada" : "bob";
const client = clientOf(user);

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
      <header>
        <h1>Travel desk</h1>
        <p className="soft">A concierge asks two colleagues, side by side. One of them asks you, with a form.</p>
      </header>
      <section aria-label="Your wish">
        <form className="row" onSubmit={begin}>
          <input
            aria-label="Wish"
            name="wish"
            placeholder="My train was five hours late"
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
          <button type="submit" disabled={text.trim() === ""}>
            Send
          </button>
          {isOpen && (
            <button type="button" id="stop" onClick={stop}>
              Stop
            </button>
          )}
        </form>
        {run !== null && (
          <p id="answer" data-role="assistant">
            {state.text}
          </p>
        )}
        {questions.map((question) => (
          <Question key={question.await_id} question={question} error={error} answer={answer} decline={decline} />
        ))}
        {error !== null && error.issues === undefined && (
          <p id="error" role="alert">
            {error.message}
          </p>
        )}
        <p className="soft">
          The run is <span id="status">{run === null ? "ready" : state.status}</span>.
        </p>
      </section>
      <aside>
        <Server />
        <div className="card">
          <h2>Colleagues at work</h2>
          {state.subRuns.length === 0 && <p className="soft">Send a wish, and two agents look into it.</p>}
          <ul>
            {state.subRuns.map(({ agent_name, run_id }) => (
              <Colleague key={run_id} name={agent_name} runId={run_id} />
            ))}
          </ul>
        </div>
        <p className="soft">
          You are {user}. Reload the page or open it twice: it shows the same run.{" "}
          <a href={`?user=${stranger}`}>Sign in as {stranger}</a>, who works for another company: this run is not shown.
        </p>
      </aside>
    </>
  );
}

/** Whether the server is there. The page does not depend on it: its client tries by itself until the server is back. */
function Server() {
  const { isAway, timesAway } = useServer("/up", true);
  return (
    <ServerCard
      isAway={isAway}
      up="End it in the terminal while a colleague speaks, or while the form waits, and start it again."
      away="Start it again in the terminal: the run goes on where it was, and this page with it."
    >
      <dl>
        <dt>times it was away while this page was open</dt>
        <dd>{timesAway}</dd>
      </dl>
    </ServerCard>
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
