import { useState } from "preact/hooks";
import type { AdminQuestion, AdminRun, AdminTree } from "../admin/records.ts";
import type { FamilyEvent } from "../inspector/api.ts";
import { questionItemId } from "../inspector/api.ts";
import { hrefToComparison } from "./comparison/comparison.tsx";
import { useFeed } from "./feed.ts";
import { Icon } from "./icons.tsx";
import { hrefTo } from "./place.ts";
import { AnswerForm } from "./question.tsx";
import { addressOf } from "./server.ts";
import { textOf } from "./text-of.ts";
import { Age, Contained, count, Lasted, Notice, Status, shortId, shownStatus } from "./words.tsx";

/** How many sub-runs of one agent with the same status are drawn before they are drawn as one. */
const ALIKE = 6;

/** The runs that belong to a run, as one picture, with their open questions. */
export function FamilyView({ run }: { readonly run: AdminRun }) {
  const [family, setFamily] = useState<FamilyEvent | null>(null);
  const [chosen, setChosen] = useState<string | null>(null);
  const { tenant, run_id } = run;
  const refused = useFeed<FamilyEvent>(addressOf("feed/family", { tenant, run_id }), setFamily);
  if (refused !== null) return <Notice>{refused}</Notice>;
  if (family === null) return <p role="status">Loading …</p>;
  const { tree, origin, forks, more_forks, questions } = family;
  const picture = { run_id, forks, questions, onAsk: setChosen };
  const question = questions.find((one) => questionItemId(one) === chosen) ?? questions[0];
  const drawn = <Branch node={tree} picture={picture} isFork={origin !== null} />;
  return (
    <div class={question === undefined ? "picture alone" : "picture"}>
      <div class="family card">
        <ul class="branches" aria-label="Runs">
          {origin === null ? (
            drawn
          ) : (
            <li>
              <Node run={origin} picture={picture} note="origin" />
              <ul class="branches">{drawn}</ul>
            </li>
          )}
        </ul>
        {more_forks && (
          <p class="faint">Forks were looked for among the newest 500 runs of the session. There may be older ones.</p>
        )}
      </div>
      {question !== undefined && (
        <aside class="details" aria-label="Question">
          <h2>
            <Icon is="question" /> {count(questions.length, "open question")}
          </h2>
          <Contained key={questionItemId(question)}>
            <p class="faint">
              {question.agent_name} {shortId(question.run_id)} · asked <Age of={question.since} />
            </p>
            <p class="asked">{textOf(question.parts)}</p>
            <AnswerForm question={question} />
          </Contained>
        </aside>
      )}
    </div>
  );
}

interface Picture {
  /** The run whose page it is. */
  readonly run_id: string;
  readonly forks: readonly AdminRun[];
  readonly questions: readonly AdminQuestion[];
  /** Shows a question with its form. */
  readonly onAsk: (id: string) => void;
}

/** A run with those below it, and the forks of the run whose page it is. */
function Branch({
  node,
  picture,
  isFork = false,
}: {
  readonly node: AdminTree;
  readonly picture: Picture;
  readonly isFork?: boolean;
}) {
  const forks = node.run_id === picture.run_id ? picture.forks : [];
  return (
    <li class={isFork ? "fork-of" : undefined}>
      <Node run={node} picture={picture} note={isFork ? "fork" : null} />
      {node.children.length + forks.length > 0 && (
        <ul class="branches">
          {groupsOf(node.children, picture).map((group) =>
            group.length === 1 ? (
              group.map((child) => <Branch key={child.run_id} node={child} picture={picture} />)
            ) : (
              <Alike key={group[0]?.run_id} runs={group} picture={picture} />
            ),
          )}
          {forks.map((fork) => (
            <li key={fork.run_id} class="fork-of">
              <Node run={fork} picture={picture} note="fork" />
            </li>
          ))}
        </ul>
      )}
    </li>
  );
}

/** Sub-runs in their order; many alike that have none below them and ask nothing are one group. */
function groupsOf(children: readonly AdminTree[], { questions, run_id }: Picture): readonly (readonly AdminTree[])[] {
  const asking = new Set(questions.map((question) => question.run_id));
  const groups = new Map<string, AdminTree[]>();
  for (const child of children) {
    const isPlain = child.children.length === 0 && !asking.has(child.run_id) && child.run_id !== run_id;
    const key = isPlain ? `${child.created?.agent_name} ${child.status}` : child.run_id;
    groups.set(key, [...(groups.get(key) ?? []), child]);
  }
  return [...groups.values()].flatMap((group) => (group.length > ALIKE ? [group] : group.map((child) => [child])));
}

function Alike({ runs, picture }: { readonly runs: readonly AdminTree[]; readonly picture: Picture }) {
  const [first] = runs;
  const [isOpen, setOpen] = useState(false);
  if (first === undefined) return null;
  return (
    <li>
      <details class="node" open={isOpen} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
        <summary>
          {runs.length} × <b>{first.created?.agent_name}</b> <Status is={shownStatus(first)} />
        </summary>
        {isOpen && (
          <ul class="alike">
            {runs.map((run) => (
              <li key={run.run_id}>
                <a href={hrefToTree(run, picture.run_id)} data-row>
                  <code>{shortId(run.run_id)}</code>
                </a>
              </li>
            ))}
          </ul>
        )}
      </details>
    </li>
  );
}

function Node({
  run,
  picture,
  note,
}: {
  readonly run: AdminRun;
  readonly picture: Picture;
  readonly note: string | null;
}) {
  const { created, finished_at, run_id } = run;
  const asked = picture.questions.filter((question) => question.run_id === run_id);
  return (
    <div class={`node ${shownStatus(run)}`}>
      <a href={hrefToTree(run, picture.run_id)} aria-current={run_id === picture.run_id ? "true" : undefined} data-row>
        <b>{created?.agent_name ?? "cannot be read"}</b> <span class="faint">{created?.version}</span>
        {note !== null && <span class="chip">{note}</span>}
        <span class="line-2">
          <Status is={shownStatus(run)} />
          <code>{shortId(run_id)}</code>
          {created !== null && <Lasted from={created.at} to={finished_at} />}
        </span>
      </a>
      {note !== null && run_id !== picture.run_id && (
        <p class="asks">
          <a href={hrefToComparison(run, picture.run_id)}>Compare</a>
        </p>
      )}
      {asked.map((question) => (
        <button
          key={question.await_id}
          type="button"
          class="asks"
          onClick={() => picture.onAsk(questionItemId(question))}
        >
          <Icon is="question" />
          {textOf(question.parts).slice(0, 60)}
        </button>
      ))}
    </div>
  );
}

function hrefToTree({ tenant, run_id }: AdminRun, shown: string): string {
  return hrefTo(["run", tenant, run_id], run_id === shown ? {} : { view: "tree" });
}
