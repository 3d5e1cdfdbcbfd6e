import { useState } from "preact/hooks";
import type { AdminPage, AdminRun } from "../admin/records.ts";
import { Json } from "./json-view.tsx";
import { addressOf, ask, messageOf } from "./server.ts";
import { Notice } from "./words.tsx";

interface Entry {
  readonly position: number;
  readonly type: string;
}

const PAGE = "100";

/** The entries of a run's log as they are stored, behind a fold. */
export function RawLog({ run: { tenant, run_id, position } }: { readonly run: AdminRun }) {
  const [pages, setPages] = useState<readonly AdminPage<Entry>[]>([]);
  const [refused, setRefused] = useState<string | null>(null);
  const next = pages.at(-1)?.next;
  const more = async (): Promise<void> => {
    const address = addressOf("log", { tenant, run_id, cursor: next ?? "", limit: PAGE });
    try {
      const page = await ask<AdminPage<Entry>>(address);
      setPages((before) => [...before, page]);
      setRefused(null);
    } catch (error) {
      setRefused(messageOf(error));
    }
  };
  return (
    <details class="log" onToggle={({ currentTarget }) => currentTarget.open && pages.length === 0 && more()}>
      <summary>
        <h2>Log</h2> {position.toLocaleString()} entries
      </summary>
      <ol>
        {pages
          .flatMap(({ items }) => items)
          .map((entry) => (
            <li key={entry.position}>
              <Json name={`${entry.position} ${entry.type}`} value={entry} />
            </li>
          ))}
      </ol>
      {refused !== null && <Notice>{refused}</Notice>}
      {next != null && (
        <button type="button" onClick={more}>
          Show more entries
        </button>
      )}
    </details>
  );
}
