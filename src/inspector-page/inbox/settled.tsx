import type { AdminRun } from "../../admin/records.ts";
import type { QuestionItem } from "../../admin/timeline.ts";
import { Json } from "../json-view.tsx";
import { Age, Notice, nameOf } from "../words.tsx";

const said: Readonly<Record<NonNullable<QuestionItem["how"]>, string>> = {
  answer: "answered this question",
  declined: "declined this question",
  default: "The question got its default answer",
  expired: "The question has expired",
  withdrawn: "The agent has withdrawn the question",
  settled: "answered this question",
};

/** How a question was settled, and by whom. */
export function Settled({
  question: { how, answer, reason, by, ended_at },
  run,
}: {
  readonly question: QuestionItem;
  readonly run: AdminRun;
}) {
  const when = ended_at ?? run.finished_at;
  const isByUser = how === "answer" || how === "declined" || how === "settled";
  return (
    <Notice kind="info">
      <b>
        {how === null
          ? "The run has ended"
          : `${isByUser ? `${by === null ? "Another user" : nameOf(by)} ` : ""}${said[how]}`}
      </b>
      {when !== null && (
        <>
          {", "}
          <Age of={when} />
        </>
      )}
      .{answer !== null && <Json value={answer} open />}
      {reason !== null && <p>{reason}</p>} What was typed here was not sent.
    </Notice>
  );
}
