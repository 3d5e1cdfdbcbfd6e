import { useState } from "preact/hooks";
import type { AdminRun } from "../admin/records.ts";
import type { TimelineItem } from "../admin/timeline.ts";
import type { SessionEvent } from "../inspector/api.ts";
import { useFeed } from "./feed.ts";
import { Json, LongText } from "./json-view.tsx";
import { create } from "./new-run.tsx";
import { hrefToRun } from "./place.ts";
import { AnswerForm, isSchema } from "./question.tsx";
import { SchemaForm } from "./schema-form.tsx";
import { addressOf, start } from "./server.ts";
import { textOf } from "./text-of.ts";
import { Contained, Notice, Status, shownStatus } from "./words.tsx";

interface Turn {
  readonly run: AdminRun;
  readonly items: readonly TimelineItem[];
}

/** A conversation: the runs of a session, with a form for the next one. */
export function ChatView({
  tenant,
  agent_name,
  session_id,
}: Readonly<Record<"tenant" | "agent_name" | "session_id", string>>) {
  const [turns, setTurns] = useState<ReadonlyMap<string, Turn>>(new Map());
  // A form that was sent is another one afterwards.
  const [sent, setSent] = useState(0);
  const refused = useFeed<SessionEvent>(addressOf("feed/session", { tenant, session_id }), ({ runs }) =>
    setTurns((before) => new Map([...before, ...runs.map((turn) => [turn.run.run_id, turn] as const)])),
  );
  const agent = start.value?.agents.find((one) => one.agent_name === agent_name);
  return (
    <>
      <h1>Chat with {agent_name}</h1>
      {refused !== null && <Notice>{refused}</Notice>}
      <ol class="chat" aria-label="Conversation" aria-live="polite">
        {[...turns.values()].map((turn) => (
          <li key={turn.run.run_id}>
            <TurnOf turn={turn} />
          </li>
        ))}
      </ol>
      {agent === undefined ? (
        <Notice kind="info">This process does not know the agent.</Notice>
      ) : (
        start.value?.may_write === true && (
          <SchemaForm
            key={sent}
            schema={isSchema(agent.input_schema) ? agent.input_schema : null}
            label="Message"
            submit="Send"
            onSubmit={async (input) => {
              await create(agent, tenant, input, session_id);
              setSent(sent + 1);
            }}
          />
        )
      )}
    </>
  );
}

function TurnOf({ turn: { run, items } }: { readonly turn: Turn }) {
  return (
    <>
      {items.map((item) => (
        <Contained key={item.position}>
          <Said item={item} run={run} />
        </Contained>
      ))}
      {run.status !== "completed" && (
        <p>
          <a href={hrefToRun(run)}>
            <Status is={shownStatus(run)} />
          </a>
        </p>
      )}
    </>
  );
}

function Said({ item, run }: { readonly item: TimelineItem; readonly run: AdminRun }) {
  switch (item.type) {
    case "created":
      return <p class="bubble user">{item.input.map(({ parts }) => textOf(parts)).join("\n")}</p>;
    case "output":
      return (
        <div class="bubble">
          <LongText text={item.text} />
          {item.objects.map((value, index) => (
            <Json key={String(index)} value={value} />
          ))}
        </div>
      );
    case "step":
      return item.of === "tool" ? (
        <p class="faint">
          {item.name}: {item.status}
        </p>
      ) : null;
    case "question":
      return (
        <div class="bubble question">
          <p class="asked">{textOf(item.parts)}</p>
          {item.how === null && run.finished_at === null ? (
            <AnswerForm
              question={{
                tenant: run.tenant,
                run_id: run.run_id,
                await_id: item.key,
                schema: item.schema,
                kind: item.kind,
              }}
            />
          ) : (
            <span class="faint">{item.how}</span>
          )}
          {item.answer !== null && <Json value={item.answer} />}
        </div>
      );
    case "ended":
      return item.error === null ? null : <p class="error">{item.error.message}</p>;
    default:
      return null;
  }
}
