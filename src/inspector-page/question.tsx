import { useState } from "preact/hooks";
import type { AdminQuestion } from "../admin/records.ts";
import type { Schema } from "./schema.ts";
import { SchemaForm } from "./schema-form.tsx";
import { act, messageOf, start } from "./server.ts";
import { Notice } from "./words.tsx";

/** The form with which an open question is answered. */
export function AnswerForm({
  question,
}: {
  readonly question: Pick<AdminQuestion, "tenant" | "run_id" | "await_id" | "schema">;
}) {
  const [isSent, setSent] = useState(false);
  const [refused, setRefused] = useState<string | null>(null);
  const { tenant, run_id, await_id } = question;
  const its = { tenant, run_id, await_id };
  if (start.value?.may_answer !== true) return null;
  if (isSent) return <Notice kind="info">The answer was sent.</Notice>;
  const decline = async (): Promise<void> => {
    try {
      await act("decline", its);
      setSent(true);
    } catch (error) {
      setRefused(messageOf(error));
    }
  };
  return (
    <>
      <SchemaForm
        schema={isSchema(question.schema) ? question.schema : null}
        label="Answer"
        submit="Answer"
        onSubmit={async (answer) => {
          await act("answer", { ...its, answer: answer ?? null });
          setSent(true);
        }}
      >
        <button type="button" class="quiet" onClick={decline}>
          Decline
        </button>
      </SchemaForm>
      {refused !== null && <Notice>{refused}</Notice>}
    </>
  );
}

export function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
