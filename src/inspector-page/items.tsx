import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { AdminRun } from "../admin/records.ts";
import type { QuestionItem, StepItem, TimelineItem } from "../admin/timeline.ts";
import type { StepFailure } from "../core/failure.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Forking } from "./consequences.ts";
import { Json, LongText } from "./json-view.tsx";
import { hrefToRun } from "./place.ts";
import { AnswerForm } from "./question.tsx";
import { messageOf } from "./server.ts";
import { textOf } from "./text-of.ts";
import { Age, duration, Notice, nameOf, now, Status, Sure, shortId } from "./words.tsx";

interface ItemProps<One extends TimelineItem = TimelineItem> {
  readonly item: One;
  readonly run: AdminRun;
  readonly began: string;
  readonly forking: Forking | undefined;
}

const kinds: Readonly<Record<TimelineItem["type"], string>> = {
  created: "input",
  forked: "forked",
  continued: "generation",
  started: "started",
  output: "output",
  step: "step",
  sleep: "sleep",
  receive: "receive",
  message: "message",
  sub_run: "sub-run",
  question: "question",
  offered: "answer",
  refused: "refused",
  cancel_requested: "cancel",
  timed_out: "time-out",
  budget_exceeded: "budget",
  ended: "end",
};

/** A line of a timeline. */
export function Item({ item, run, began, forking }: ItemProps) {
  const kind = item.type === "step" && item.of !== "agent" ? item.of : kinds[item.type];
  const isBad = (item.type === "step" && item.status === "failed") || (item.type === "ended" && item.error !== null);
  return (
    <li class={`item ${kind}${isBad ? " bad" : ""}`} id={`line-${item.position}`} tabIndex={-1} data-row>
      <span class="at" title={item.at}>
        +{duration(Math.max(0, Date.parse(item.at) - Date.parse(began)))}
      </span>
      <span class="kind">{kind}</span>
      <div class="body">
        {"key" in item && typeof item.key === "string" && item.type !== "ended" && (
          <ForkButton forking={forking} before={item.key} />
        )}
        {item.type === "ended" && item.outcome === "failed" && <ForkButton forking={forking} />}
        <Body item={item} run={run} />
      </div>
    </li>
  );
}

/** Forks a run before an operation, after it was told what that does. */
export function ForkButton({ forking, before }: Pick<ItemProps, "forking"> & { readonly before?: string }) {
  const [refused, setRefused] = useState<string | null>(null);
  if (forking === undefined) return null;
  const fork = (): void => void forking.fork(before).catch((error: unknown) => setRefused(messageOf(error)));
  return (
    <>
      <Sure
        label={before === undefined ? "Try again in a fork" : "Fork from here"}
        says={() => forking.says(before)}
        verb="Fork"
        isLink
        onSure={fork}
      >
        {before !== undefined && <span class="unseen"> ({before})</span>}
      </Sure>
      {refused !== null && <Notice>{refused}</Notice>}
    </>
  );
}

/** What is known of an item. */
export function Body({ item, run }: Pick<ItemProps, "item" | "run">): preact.JSX.Element | null {
  switch (item.type) {
    case "created":
      return (
        <>
          {item.input.map(({ role, parts }, index) => (
            <Said key={String(index)} by={role} text={textOf(parts)} />
          ))}
        </>
      );
    case "forked":
      return (
        <>
          <By of={item.by} did="Forked" /> What follows is this fork's own.
        </>
      );
    case "continued":
      return (
        <>
          Generation {item.generation} began{item.carry === null ? "." : " with"}
          {item.carry !== null && <LongText text={JSON.stringify(item.carry)} />}
        </>
      );
    case "started":
      return <>The agent began.</>;
    case "output":
      return (
        <>
          {item.text !== "" && (
            <p class="said">
              <LongText text={item.text} />
            </p>
          )}
          {item.objects.map((value, index) => (
            <Json key={String(index)} value={value} />
          ))}
          {item.source !== null && <Folded name="from elsewhere" value={item.source} />}
        </>
      );
    case "step":
      return <Step item={item} />;
    case "sleep":
      return (
        <>
          {item.how === null ? <Countdown until={item.until} /> : `${took(item)}, ${item.how}`} <Key of={item.key} />
        </>
      );
    case "receive":
      return (
        <>
          <b>{item.name}</b>{" "}
          {item.how === null ? (
            <>waits{item.until !== null && <Countdown until={item.until} />}</>
          ) : (
            `${item.how} after ${took(item)}`
          )}{" "}
          {item.message !== null && (
            <a href={`#line-${item.message}`} onClick={(event) => show(event, item.message)}>
              the message
            </a>
          )}{" "}
          <Key of={item.key} />
          {item.issues !== null && <Folded name="what was wrong" value={item.issues} />}
        </>
      );
    case "message":
      return (
        <>
          <b>{item.name}</b> <Json value={item.data} />
          {item.by !== null && <Folded name="sent by" value={item.by} />}
        </>
      );
    case "sub_run":
      return (
        <>
          <a href={hrefToRun({ tenant: run.tenant, run_id: item.run_id })}>
            <b>{item.agent_name}</b> {shortId(item.run_id)}
          </a>{" "}
          {item.status !== null && <Status is={item.status} />} {item.ended_at !== null && took(item)}{" "}
          <Key of={item.key} />
          <Tokens of={item.usage} />
          {item.error !== null && <p class="error">{item.error.message}</p>}
        </>
      );
    case "question":
      return <Question item={item} run={run} />;
    case "offered":
      return (
        <>
          An answer to {item.await_id} was accepted, and is checked by the agent's process.{" "}
          <By of={item.by} did="Given" />
        </>
      );
    case "refused":
      return (
        <>
          An answer was refused: {item.code}
          {item.issues?.map(({ message }) => (
            <p key={message} class="error">
              {message}
            </p>
          ))}
        </>
      );
    case "cancel_requested":
      return item.by === null ? <>The run was asked to stop.</> : <By of={item.by} did="Cancelled" />;
    case "timed_out":
      return <>The run was active for too long.</>;
    case "budget_exceeded":
      return <>The run used more tokens than it may.</>;
    case "ended":
      return (
        <>
          <Status is={item.outcome} />
          {item.error !== null && <p class="error">{item.error.message}</p>}
          {item.key !== null && (
            <p>
              The agent did not handle the error of <code>{item.key}</code>.
            </p>
          )}
          {item.cause !== null && <Failure error={item.cause} />}
        </>
      );
  }
}

function Step({ item }: { readonly item: StepItem }) {
  const { name, key, attempts, error, result, usage, waits_for, retry_at, of } = item;
  return (
    <>
      <b>{name}</b> <Key of={key} /> {item.ended_at === null ? <Running since={item.at} /> : took(item)}
      {attempts.length > 1 && ` · ${attempts.length} attempts`}
      <Tokens of={usage} />
      {retry_at !== null ? (
        <p class="faint">
          Waits for attempt {attempts.length + 1}, which begins <Age of={retry_at} />.
        </p>
      ) : (
        waits_for !== null && <p class="faint">Waits for {waits_for}.</p>
      )}
      {attempts.slice(0, error === null ? undefined : -1).map(
        ({ attempt, error: failed }) =>
          failed !== null && (
            <div key={attempt} class="attempt">
              <span class="faint">Attempt {attempt}</span>
              <Failure error={failed} />
            </div>
          ),
      )}
      {of === "model" && result !== undefined ? (
        <ModelCall result={result} />
      ) : (
        result !== undefined && <Result value={result} />
      )}
      {error !== null && <Failure error={error} />}
    </>
  );
}

/** A call of a model: what was new in its prompt, and its answer. */
function ModelCall({ result }: { readonly result: unknown }) {
  const { model, prompt, answer, ...others } = result as Readonly<Record<string, unknown>>;
  return (
    <>
      {typeof model === "string" && <span class="faint"> {model}</span>}
      {Array.isArray(prompt) ? (
        prompt.map((message, index) => <Message key={String(index)} is={message} />)
      ) : (
        <Folded name="new in the prompt" value={prompt} open />
      )}
      <Message is={{ role: "answer", content: answer }} />
      {Object.keys(others).length > 0 && <Folded name="more" value={others} />}
    </>
  );
}

/** A message to a model, or its answer. What is no text is shown as it is. */
function Message({ is }: { readonly is: unknown }) {
  const { role, content } = Object(is) as Readonly<Record<string, unknown>>;
  if (typeof role !== "string") return <Json value={is} />;
  const parts: readonly unknown[] = Array.isArray(content) ? content : [content];
  return (
    <div class={`spoken ${role === "answer" ? "answer" : ""}`}>
      <span class="faint">{role}</span>
      {parts.map((part, index) => (
        <Spoken key={String(index)} part={part} />
      ))}
    </div>
  );
}

function Spoken({ part }: { readonly part: unknown }) {
  if (typeof part === "string") return <LongText text={part} />;
  const { type, text, toolName, input } = Object(part) as Readonly<Record<string, unknown>>;
  if (type === "text" && typeof text === "string") return <LongText text={text} />;
  if (type === "tool-call" && typeof toolName === "string")
    return <Json name={`calls ${toolName}`} value={input} open />;
  return <Json value={part} />;
}

function Result({ value }: { readonly value: unknown }) {
  return (
    <div class="result">
      <span class="faint">→ </span>
      <Json value={value} />
    </div>
  );
}

/** A question, with its form while it is open, or with its answer. */
export function Question({ item, run }: { readonly item: QuestionItem; readonly run: AdminRun }) {
  const { key, parts, kind, how, answer, reason, by, expires_at, of, schema } = item;
  const asks = of ?? { run_id: run.run_id, await_id: key };
  return (
    <>
      <p class="asked">{textOf(parts)}</p>
      <span class="faint">
        {kind !== "input" && `${kind} · `}
        <Key of={key} />
        {of !== null && (
          <>
            {" "}
            of <a href={hrefToRun({ tenant: run.tenant, run_id: of.run_id })}>{shortId(of.run_id)}</a>
          </>
        )}
        {how !== null && ` · ${how} after ${took(item)}`}
        {how === null && expires_at !== null && (
          <>
            {" · expires "}
            <Age of={expires_at} />
          </>
        )}
      </span>
      {answer !== null && <Result value={answer} />}
      {reason !== null && <p>{reason}</p>}
      {by !== null && <Folded name="by" value={by} />}
      {how === null && run.finished_at === null && (
        <AnswerForm question={{ tenant: run.tenant, run_id: asks.run_id, await_id: asks.await_id, schema, kind }} />
      )}
    </>
  );
}

/** Who has done something: by name, where the principal has one. All of the principal is in the title. */
function By({ of: principal, did }: { readonly of: JsonValue; readonly did: string }) {
  if (principal === null) return null;
  return (
    <span title={JSON.stringify(principal)}>
      {did} by {nameOf(principal)}.
    </span>
  );
}

function Said({ by, text }: { readonly by: string; readonly text: string }) {
  return (
    <p class="said">
      <span class="faint">{by}: </span>
      <LongText text={text} />
    </p>
  );
}

/** An error with all that is recorded of it. */
export function Failure({ error }: { readonly error: StepFailure }) {
  const { name, message, code, data, stack } = error;
  return (
    <div class="failure">
      <p class="error">
        {name}
        {code !== null && ` (${code})`}: <LongText text={message} />
      </p>
      {data !== undefined && data !== null && <Json value={data} />}
      {stack !== undefined && (
        <details>
          <summary>Where it was thrown</summary>
          <pre>{stack}</pre>
        </details>
      )}
    </div>
  );
}

function Folded({ name, value, open = false }: { name: string; value: unknown; open?: boolean }): preact.JSX.Element {
  return (
    <div class="folded">
      <Json name={name} value={value} open={open} />
    </div>
  );
}

function Tokens({ of: usage }: { readonly of: StepItem["usage"] }) {
  return usage === null ? null : <span class="faint"> · {usage.total_tokens.toLocaleString()} tokens</span>;
}

function Key({ of }: { readonly of: string }): ComponentChildren & preact.JSX.Element {
  return <code class="faint">{of}</code>;
}

function Running({ since }: { readonly since: string }) {
  return <>running for {duration(Math.max(0, now.value - Date.parse(since)))}</>;
}

function Countdown({ until }: { readonly until: string | null }) {
  if (until === null) return <> waits</>;
  return (
    <>
      {" until "}
      <Age of={until} />
    </>
  );
}

function took({ at, ended_at }: { readonly at: string; readonly ended_at: string | null }): string {
  return ended_at === null ? "" : duration(Math.max(0, Date.parse(ended_at) - Date.parse(at)));
}

/** The address names the view, and so a place within it cannot be in the address too. */
function show(event: Event, position: number | null): void {
  event.preventDefault();
  const line = document.getElementById(`line-${position}`);
  line?.scrollIntoView({ block: "center" });
  line?.focus();
}
