import type { AdminQuestion } from "../admin/records.ts";
import { questionItemId } from "../inspector/api.ts";
import { useList } from "./feed.ts";
import { hrefToRun } from "./place.ts";
import { AnswerForm } from "./question.tsx";
import { addressOf } from "./server.ts";
import { textOf } from "./text-of.ts";
import { Age, Contained, Counted, shortId } from "./words.tsx";

/** The inbox: the open questions of all tenants, or of one, each with its form. */
export function QuestionsView() {
  const list = useList<AdminQuestion>(addressOf("feed/questions", { limit: "100" }), questionItemId);
  return (
    <>
      <h1>Questions</h1>
      <Counted list={list} one="open question" none="No run waits for an answer.">
        A question of any agent appears here at once, with its form.
      </Counted>
      <ul class="cards">
        {list.items?.map((question) => (
          <li key={questionItemId(question)} class="card">
            <Contained>
              <Question question={question} />
            </Contained>
          </li>
        ))}
      </ul>
    </>
  );
}

function Question({ question }: { readonly question: AdminQuestion }) {
  const { tenant, run_id, root_run_id, agent_name, version, name, kind, parts, since, expires_at, labels } = question;
  return (
    <>
      <p class="faint">
        <a href={hrefToRun(question)} data-row>
          {agent_name} {shortId(run_id)}
        </a>
        {root_run_id !== run_id && (
          <>
            {" of "}
            <a href={hrefToRun({ tenant, run_id: root_run_id })}>{shortId(root_run_id)}</a>
          </>
        )}
        {version !== null && ` · version ${version}`}
        {tenant !== "" && ` · ${tenant}`}
        {Object.entries(labels).map(([label, value]) => ` · ${label}: ${value}`)}
        {kind !== "input" && ` · ${kind}`}
        {name !== null && ` · ${name}`} · asked <Age of={since} />
        {expires_at !== null && (
          <>
            {" · expires "}
            <Age of={expires_at} />
          </>
        )}
      </p>
      <p class="asked">{textOf(parts)}</p>
      <AnswerForm question={question} />
    </>
  );
}
