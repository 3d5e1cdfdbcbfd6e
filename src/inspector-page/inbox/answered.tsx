import { useEffect, useState } from "preact/hooks";
import type { AnsweredQuestion, Answers } from "../../inspector/api.ts";
import { Json } from "../json-view.tsx";
import { hrefToRun } from "../place.ts";
import { addressOf, ask, messageOf } from "../server.ts";
import { Age, count, Empty, Notice, nameOf, shortId } from "../words.tsx";

/** Who has answered what, as far as the newest runs tell it. */
export function AnsweredList() {
  const [known, setKnown] = useState<Answers | null>(null);
  const [refused, setRefused] = useState<string | null>(null);
  const read = async (): Promise<void> => {
    try {
      setKnown(await ask<Answers>(addressOf("answers")));
      setRefused(null);
    } catch (error) {
      setRefused(messageOf(error));
    }
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: it is read when the view is opened.
  useEffect(() => {
    void read();
  }, []);
  if (refused !== null) return <Notice>{refused}</Notice>;
  if (known === null) return <p role="status">Loading …</p>;
  const { answers, runs, more } = known;
  return (
    <>
      <p class="count" role="status">
        {count(answers.length, "question")} settled in {more ? "the newest " : ""}
        {count(runs, "run")}
        {more && ". The page of a run shows its own, whatever its age"}.{" "}
        <button type="button" class="link" onClick={read}>
          Read again
        </button>
      </p>
      {answers.length === 0 ? (
        <Empty is="No question was answered in these runs.">
          <a href="#/questions">Open questions</a>
        </Empty>
      ) : (
        <div class="wide">
          <table>
            <thead>
              <tr>
                <th scope="col">Question</th>
                <th scope="col">Answer</th>
                <th scope="col">By</th>
                <th scope="col">Run</th>
                <th scope="col" class="number">
                  When
                </th>
              </tr>
            </thead>
            <tbody>
              {answers.map((one) => (
                <tr key={`${one.run_id} ${one.await_id} ${one.at}`}>
                  <th scope="row" class="long">
                    {one.text === "" ? one.await_id : one.text}
                  </th>
                  <td>
                    <Answer of={one} />
                  </td>
                  <td>{one.by === null ? "" : nameOf(one.by)}</td>
                  <td>
                    <a href={hrefToRun(one)} data-row>
                      {one.agent_name} {shortId(one.run_id)}
                    </a>
                    {one.tenant !== "" && <span class="chip">{one.tenant}</span>}
                  </td>
                  <td class="number">
                    <Age of={one.at} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

function Answer({ of: { how, answer } }: { readonly of: AnsweredQuestion }) {
  if (how === "expired") return <span class="faint">expired</span>;
  if (how === "default") return <span class="faint">its default</span>;
  if (how === "declined") return <>declined{typeof answer === "string" && `: ${answer}`}</>;
  return <Json value={answer} />;
}
