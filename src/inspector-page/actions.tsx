import { useRef, useState } from "preact/hooks";
import type { AdminRun } from "../admin/records.ts";
import type { TimelineItem } from "../admin/timeline.ts";
import { CompareWith } from "./comparison/comparison.tsx";
import { cancelSays } from "./consequences.ts";
import { goTo } from "./place.ts";
import { act, addressOf, ask, messageOf, start } from "./server.ts";
import { Notice, Sure } from "./words.tsx";

/** What can be done with a run. */
export function RunActions({ run, items }: { readonly run: AdminRun; readonly items: readonly TimelineItem[] }) {
  const [said, setSaid] = useState<{ readonly kind: "error" | "info"; readonly text: string } | null>(null);
  const [isSending, setSending] = useState(false);
  const [isComparing, setComparing] = useState(false);
  const [isDeleting, setDeleting] = useState(false);
  const [cassette, setCassette] = useState<string | null>(null);
  const { tenant, run_id, finished_at } = run;
  const its = { tenant, run_id };
  const mayWrite = start.value?.may_write === true;
  const attempt = async (what: () => Promise<string>): Promise<void> => {
    try {
      setSaid({ kind: "info", text: await what() });
    } catch (error) {
      setSaid({ kind: "error", text: messageOf(error) });
    }
  };
  const copy = (): Promise<void> =>
    attempt(async () => {
      const text = JSON.stringify(await ask<object>(addressOf("cassette", its)));
      try {
        await navigator.clipboard.writeText(text);
        setCassette(null);
        return "The cassette is in the clipboard. In a test: await replay(agent, cassette).";
      } catch {
        setCassette(text);
        return "This browser does not let the page copy. Copy the cassette by hand.";
      }
    });
  return (
    <>
      <p class="buttons">
        <button type="button" onClick={copy}>
          Copy as cassette
        </button>
        <button type="button" onClick={() => setComparing(!isComparing)} aria-expanded={isComparing}>
          Compare with …
        </button>
        {mayWrite && finished_at === null && (
          <>
            <button type="button" onClick={() => setSending(!isSending)} aria-expanded={isSending}>
              Send a message
            </button>
            {run.status !== "cancelling" && (
              <Sure
                label="Cancel the run"
                says={() => cancelSays(run, items)}
                verb="Cancel it"
                onSure={() => attempt(() => act("cancel", its).then(() => "The run was asked to stop."))}
              />
            )}
          </>
        )}
        {mayWrite && finished_at !== null && !isDeleting && (
          <button type="button" class="quiet" onClick={() => setDeleting(true)}>
            Delete the run
          </button>
        )}
        {isDeleting && (
          <span role="alertdialog" aria-label="Delete the run">
            Its log and its sub-runs go with it.{" "}
            <button
              type="button"
              class="danger"
              onClick={() =>
                attempt(async () => {
                  await act("delete", its);
                  goTo("#/runs");
                  return "The run was deleted.";
                })
              }
            >
              Delete
            </button>{" "}
            <button type="button" class="quiet" onClick={() => setDeleting(false)}>
              Keep
            </button>
          </span>
        )}
      </p>
      {said !== null && <Notice kind={said.kind}>{said.text}</Notice>}
      {cassette !== null && (
        <label>
          Cassette
          <textarea readOnly rows={4} value={cassette} onFocus={({ currentTarget }) => currentTarget.select()} />
        </label>
      )}
      {isComparing && <CompareWith run={run} onClose={() => setComparing(false)} />}
      {isSending && (
        <MessageForm
          onSend={(name, data) =>
            attempt(async () => {
              await act("send", { ...its, name, data });
              setSending(false);
              return "The message was sent.";
            })
          }
        />
      )}
    </>
  );
}

function MessageForm({ onSend }: { readonly onSend: (name: string, data: unknown) => Promise<void> }) {
  const name = useRef<HTMLInputElement>(null);
  const data = useRef<HTMLTextAreaElement>(null);
  const [isBroken, setBroken] = useState(false);
  const send = (event: Event): void => {
    event.preventDefault();
    const text = data.current?.value.trim() ?? "";
    try {
      void onSend(name.current?.value ?? "", text === "" ? null : JSON.parse(text));
      setBroken(false);
    } catch {
      setBroken(true);
    }
  };
  return (
    <form class="schema-form card" onSubmit={send}>
      <p class="field">
        <label htmlFor="message-name">Name</label>
        <input id="message-name" ref={name} required autocomplete="off" />
      </p>
      <p class="field">
        <label htmlFor="message-data">Data (JSON)</label>
        <textarea
          id="message-data"
          ref={data}
          rows={3}
          spellcheck={false}
          aria-invalid={isBroken}
          aria-describedby="message-problem"
        />
        <b id="message-problem" class="problem">
          {isBroken && "This is not JSON."}
        </b>
      </p>
      <button type="submit">Send</button>
    </form>
  );
}
