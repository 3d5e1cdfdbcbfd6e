import { useEffect, useState } from "preact/hooks";
import type { AskedQuestion } from "../../inspector/api.ts";
import { IconButton } from "../icons.tsx";
import { Body } from "../items.tsx";
import { LongText } from "../json-view.tsx";
import { hrefToRun } from "../place.ts";
import { AnswerForm } from "../question.tsx";
import { addressOf, ask, messageOf, start } from "../server.ts";
import { textOf } from "../text-of.ts";
import { Age, Contained, Notice, shortId } from "../words.tsx";
import { Settled } from "./settled.tsx";

/** How many characters of an input are shown before the user asks for all. */
const INPUT = 600;

/** How often a question is read that the list does not have, in milliseconds. */
const UNLISTED_MS = 2_000;

/** The tenant, the run and the question of an id. */
function idsIn(id: string): { readonly tenant: string; readonly run_id: string; readonly await_id: string } {
  const [, tenant = "", run_id = "", await_id = ""] = /^(.*)\/([0-9a-f-]{36})\/(.*)$/s.exec(id) ?? [];
  return { tenant, run_id, await_id };
}

/** A question with its form, and beside it what one needs to know. */
export function Asked({
  id,
  isListed,
  place,
  onFormer,
  onNext,
  onSettled,
}: {
  readonly id: string;
  /** Whether the list has it: when it leaves the list, it may have been answered elsewhere. */
  readonly isListed: boolean;
  readonly place: string | null;
  readonly onFormer: (() => void) | undefined;
  readonly onNext: (() => void) | undefined;
  readonly onSettled: (how: string) => void;
}) {
  const [asked, setAsked] = useState<AskedQuestion | null>(null);
  const [refused, setRefused] = useState<string | null>(null);
  const { tenant, run_id, await_id } = idsIn(id);
  const read = async (): Promise<AskedQuestion["question"]> => {
    try {
      const now = await ask<AskedQuestion>(addressOf("question", { tenant, run_id, await_id }));
      setAsked(now);
      setRefused(null);
      return now.question;
    } catch (error) {
      setRefused(messageOf(error));
      return null;
    }
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: a question that leaves the list is read again.
  useEffect(() => {
    void read();
  }, [isListed]);
  const { question, run, input, before } = asked ?? {};
  const isOver = question?.ended_at != null || run?.finished_at != null;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the component is made anew for another question.
  useEffect(() => {
    if (isListed || isOver) return undefined;
    // The list, which tells of changes, does not have it.
    const timer = setInterval(() => {
      if (!document.hidden) void read();
    }, UNLISTED_MS);
    return () => clearInterval(timer);
  }, [isListed, isOver]);
  return (
    <article id="question" class="asked-for card" tabIndex={-1} aria-label="Question">
      <div class="heading">
        <h2>
          <a href={hrefToRun({ tenant, run_id })}>
            {run?.created?.agent_name ?? "Run"} {shortId(run_id)}
          </a>
        </h2>
        <span class="faint number">{place}</span>
        <IconButton is="former" label="The former question" disabled={!onFormer} onClick={() => onFormer?.()} />
        <IconButton is="fold" label="The next question" disabled={!onNext} onClick={() => onNext?.()} />
      </div>
      {refused !== null && <Notice>{refused}</Notice>}
      {asked === null && refused === null && <p role="status">Loading …</p>}
      {question === null && <Notice kind="info">The run does not have this question.</Notice>}
      {question != null && run !== undefined && (
        <>
          <p class="faint">
            {aboutOf(asked, tenant)
              .map((text) => `${text} · `)
              .join("")}
            asked <Age of={question.at} />
            {!isOver && question.expires_at !== null && (
              <>
                {" · expires "}
                <Age of={question.expires_at} />
              </>
            )}
          </p>
          <p class="asked">
            <LongText text={textOf(question.parts)} />
          </p>
          {isOver && <Settled question={question} run={run} />}
          <AnswerForm
            question={{ tenant, run_id, await_id, schema: question.schema, kind: question.kind }}
            isOver={isOver}
            onSettled={onSettled}
            onRefused={read}
          />
          {start.value?.may_answer !== true && <p class="faint">You may not answer questions here.</p>}
          <h3>Input</h3>
          <div class="said">
            {input?.map(({ role, parts }, index) => (
              <p key={String(index)}>
                {input.length > 1 && <span class="faint">{role}: </span>}
                <Cut text={textOf(parts)} />
              </p>
            ))}
          </div>
          {before !== undefined && before.length > 0 && (
            <>
              <h3>What the run did before</h3>
              <ol class="before">
                {before.map((item) => (
                  <li key={item.position}>
                    <Contained>
                      <Body item={item} run={run} />
                    </Contained>
                  </li>
                ))}
              </ol>
            </>
          )}
        </>
      )}
    </article>
  );
}

function aboutOf(asked: AskedQuestion | null, tenant: string): readonly string[] {
  const { version, labels = {} } = asked?.run.created ?? {};
  const { kind, name } = asked?.question ?? {};
  const known = [
    tenant,
    version == null ? "" : `version ${version}`,
    kind === "input" ? "" : kind,
    name,
    ...Object.entries(labels).map(([label, value]) => `${label}: ${value}`),
  ];
  return known.filter((text) => text != null && text !== "") as string[];
}

function Cut({ text }: { readonly text: string }) {
  const [isWhole, setWhole] = useState(text.length <= INPUT);
  if (isWhole) return <LongText text={text} />;
  return (
    <>
      <span class="text">{text.slice(0, INPUT)}… </span>
      <button type="button" class="link" onClick={() => setWhole(true)}>
        Show all
      </button>
    </>
  );
}
