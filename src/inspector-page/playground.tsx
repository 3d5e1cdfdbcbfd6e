import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { AdminRun } from "../admin/records.ts";
import type { CodeOfRun } from "../inspector/api.ts";
import { connection } from "./feed.ts";
import { Icon } from "./icons.tsx";
import { goTo, hrefTo, hrefToRun } from "./place.ts";
import { act, addressOf, ask, messageOf } from "./server.ts";
import { Notice } from "./words.tsx";

/** What the bodies of the steps of runs were when their pages were opened, by run. Code that is saved later is compared with it. */
const bodiesOf = new Map<string, ReadonlyMap<string, string>>();

/** Whether a run is forked as soon as saved code differs, and what its steps then do. They hold for all runs. */
const forksAtSave = signal(false);
const stub = signal<"" | "models" | "steps">("");

/** From where on the code that was saved does something else than a run. */
interface Change {
  /** The operation before which a fork does it; null: behind all that is recorded. */
  readonly before: string | null;
  readonly says: string;
  /** The steps whose code differs. */
  readonly changed: readonly string[];
}

/** Edited code, tried on a run: says from where on it differs, and forks the run there. */
export function PlaygroundCard({ run }: { readonly run: AdminRun }) {
  const [change, setChange] = useState<Change | null>(null);
  const [refused, setRefused] = useState<string | null>(null);
  const { tenant, run_id, created } = run;
  const fork = async ({ before, changed }: Change): Promise<void> => {
    const how = stub.value === "" ? {} : { stub: stub.value, except: changed };
    const its = { tenant, run_id, ...(before !== null && { before }), ...how };
    goTo(hrefToRun(await act<{ tenant: string; run_id: string }>("fork", its)));
  };
  const compare = async (): Promise<void> => {
    try {
      const now = await ask<CodeOfRun>(addressOf("code", { tenant, run_id }));
      const found = changeIn(run_id, now);
      setRefused(null);
      setChange(found);
      if (found !== null && forksAtSave.value) await fork(found);
    } catch (error) {
      setRefused(messageOf(error));
    }
  };
  const isOpen = connection.value === "open";
  // biome-ignore lint/correctness/useExhaustiveDependencies: it is compared when there is a process again, and when the run has ended.
  useEffect(() => {
    // A process that has loaded other code is another process: the connection to the one before it was lost.
    if (isOpen) void compare();
  }, [isOpen, run_id, run.finished_at]);
  if (created?.durable !== true) return null;
  return (
    <section class="card playground" aria-label="Playground">
      <p role="status">
        <Icon is="tool" />{" "}
        {refused ??
          change?.says ??
          "The code does what this run did. Edit it and save: this page then says from where on it differs."}
      </p>
      <div class="buttons">
        {change !== null && (
          <button
            type="button"
            class="first"
            onClick={() => void fork(change).catch((error: unknown) => setRefused(messageOf(error)))}
          >
            <Icon is="fork" />
            {change.before === null ? "Fork behind all that is recorded" : `Fork before ${change.before}`}
          </button>
        )}
        <label>
          Steps{" "}
          <select
            value={stub.value}
            onChange={({ currentTarget }) => {
              stub.value = currentTarget.value as typeof stub.value;
            }}
          >
            <option value="">all at work</option>
            <option value="models">models as recorded</option>
            <option value="steps">as recorded, but for those that differ</option>
          </select>
        </label>
        <label>
          <input
            type="checkbox"
            checked={forksAtSave.value}
            onChange={({ currentTarget }) => {
              forksAtSave.value = currentTarget.checked;
            }}
          />{" "}
          Fork at each save
        </label>
        <a class="button" href={hrefTo(["new", created.agent_name])}>
          Another input
        </a>
      </div>
      {forksAtSave.value && stub.value === "" && (
        <Notice kind="info">Each save does the steps behind the change again, with their effects.</Notice>
      )}
    </section>
  );
}

/** Where the code differs from the run, or from what it was when the page was opened; null: nowhere. */
function changeIn(run_id: string, { operations, differs }: CodeOfRun): Change | null {
  const known = bodiesOf.get(run_id);
  const bodies = new Map(operations.flatMap(({ key, body }) => (body === null ? [] : [[key, body] as const])));
  // Of what was recorded since, the code is that of now.
  bodiesOf.set(run_id, new Map([...bodies, ...(known ?? [])]));
  const changed = [...bodies].filter(([key, body]) => known?.has(key) && known.get(key) !== body).map(([key]) => key);
  const [first] = changed;
  const at = first === undefined ? Number.POSITIVE_INFINITY : operations.findIndex(({ key }) => key === first);
  if (differs !== null && differs.at <= at) {
    const { expected, asked, line } = differs;
    const before = operations[differs.at]?.key ?? null;
    return {
      before,
      changed,
      says: `The run has ${expected}, the code ${asked}${line === null ? "." : ` (${line}).`}`,
    };
  }
  if (first === undefined) return null;
  return { before: first, changed, says: `The code of ${changed.join(", ")} differs.` };
}
