import { useId, useState } from "preact/hooks";
import type { AdminQuestion } from "../admin/records.ts";
import { questionItemId } from "../inspector/api.ts";
import type { Schema } from "./schema.ts";
import { pressesOf } from "./schema.ts";
import { SchemaForm } from "./schema-form.tsx";
import { act, messageOf, start } from "./server.ts";
import { Notice } from "./words.tsx";

/** The form with which an open question is answered. */
export function AnswerForm({
  question,
  isOver = false,
  onSettled,
  onRefused,
}: {
  readonly question: Pick<AdminQuestion, "tenant" | "run_id" | "await_id" | "schema" | "kind">;
  /** Whether it is settled already: what was typed is shown, and not sent. */
  readonly isOver?: boolean;
  /** Called with what was done. Left out: the form says it. */
  readonly onSettled?: (how: string) => void;
  /** Called when the server has refused an answer: the question may be settled. */
  readonly onRefused?: () => Promise<unknown>;
}) {
  const [isSent, setSent] = useState(false);
  const [isDeclining, setDeclining] = useState(false);
  const { tenant, run_id, await_id } = question;
  const its = { tenant, run_id, await_id };
  if (start.value?.may_answer !== true) return null;
  if (isSent) return <Notice kind="info">The answer was sent.</Notice>;
  const settle = async (name: "answer" | "decline", body: object, how: string): Promise<void> => {
    try {
      await act(name, { ...its, ...body });
    } catch (error) {
      await onRefused?.();
      throw error;
    }
    if (onSettled === undefined) setSent(true);
    else onSettled(how);
  };
  const schema = isSchema(question.schema) ? question.schema : null;
  return (
    <>
      <SchemaForm
        schema={schema}
        label="Answer"
        submit="Answer"
        presses={schema === null ? undefined : pressesOf(schema, question.kind === "approval")}
        draft={questionItemId(question)}
        isOver={isOver}
        onSubmit={(answer) => settle("answer", { answer: answer ?? null }, "Answered")}
      >
        {!isDeclining && !isOver && (
          <button type="button" class="quiet" data-decline onClick={() => setDeclining(true)}>
            Decline
          </button>
        )}
      </SchemaForm>
      {isDeclining && !isOver && (
        <DeclineForm
          onDecline={(reason) => settle("decline", reason === "" ? {} : { reason }, "Declined")}
          onLeave={() => setDeclining(false)}
        />
      )}
    </>
  );
}

/** Says what it means to decline, and asks why. */
function DeclineForm({
  onDecline,
  onLeave,
}: {
  readonly onDecline: (reason: string) => Promise<void>;
  readonly onLeave: () => void;
}) {
  const id = useId();
  const [reason, setReason] = useState("");
  const [refused, setRefused] = useState<string | null>(null);
  const send = (event: Event): void => {
    event.preventDefault();
    onDecline(reason).catch((error: unknown) => setRefused(messageOf(error)));
  };
  return (
    <form class="schema-form decline" onSubmit={send} aria-label="Decline">
      <p class="faint">The agent gets an error in place of an answer. The run fails, unless its code handles that.</p>
      <p class="field">
        <label htmlFor={id}>
          Reason <small>(optional)</small>
        </label>
        <input
          id={id}
          ref={(field) => field?.focus()}
          maxLength={2_000}
          autocomplete="off"
          value={reason}
          onInput={({ currentTarget }) => setReason(currentTarget.value)}
        />
      </p>
      {refused !== null && <Notice>{refused}</Notice>}
      <p class="buttons">
        <button type="submit" class="danger">
          Decline the question
        </button>
        <button type="button" onClick={onLeave}>
          Leave it open
        </button>
      </p>
    </form>
  );
}

export function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
