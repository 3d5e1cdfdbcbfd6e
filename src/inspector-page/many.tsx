import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { AdminAct } from "../admin/acts.ts";
import type { AdminRun } from "../admin/records.ts";
import { hrefToRun } from "./place.ts";
import { act, addressOf, ask, messageOf, start } from "./server.ts";
import { Notice } from "./words.tsx";

/** How often the page asks how far an act is, in milliseconds. */
const POLL_MS = 1_000;

/** What can be done to all runs of a list. */
const acts = {
  cancel: {
    endpoint: "cancel-many",
    label: "Cancel all that match",
    verb: "Cancel",
    done: "cancelled",
    statuses: ["created", "in-progress", "awaiting"],
    mayMean: (_run: AdminRun) => true,
  },
  retry: {
    endpoint: "retry-many",
    label: "Retry all that match",
    verb: "Retry",
    done: "tried again",
    statuses: ["failed"],
    mayMean: ({ created }: AdminRun) => created?.parent_run_id == null,
  },
  move: {
    endpoint: "move-many",
    label: "Move all that match to a version",
    verb: "Move",
    done: "moved",
    statuses: ["created", "in-progress", "awaiting"],
    mayMean: ({ created }: AdminRun) => created?.durable === true,
  },
} as const;

type ActName = keyof typeof acts;

/** The act that was begun last. It outlives the view of the list. */
const last = signal<AdminAct | null>(null);

/** The buttons of a list, by the filters that are shown, and how far the last act is. */
export function ManyActions({
  filters,
  items,
  more,
}: {
  readonly filters: Readonly<Record<string, string>>;
  readonly items: readonly AdminRun[];
  /** Whether the list has more runs than are shown. */
  readonly more: boolean;
}) {
  const [asked, setAsked] = useState<ActName | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [version, setVersion] = useState("");
  const { roots: _, ...conditions } = filters;
  const isFiltered = Object.values(conditions).some((value) => value !== "");
  const meant = (name: ActName): number =>
    items.filter((run) => acts[name].statuses.some((status) => status === run.status) && acts[name].mayMean(run))
      .length;
  const statusOf = (name: ActName): string[] => {
    const wanted = filters["status"] === "" ? [] : (filters["status"] ?? "").split(",");
    return acts[name].statuses.filter((status) => wanted.length === 0 || wanted.includes(status));
  };
  const may = (name: ActName): boolean => statusOf(name).length > 0 && meant(name) > 0;
  const begin = (name: ActName): Promise<void> =>
    attempt(setProblem, async () => {
      setAsked(null);
      const given = { ...filters, status: filters["status"] === "" ? "" : statusOf(name).join(",") };
      const kept = new URLSearchParams(Object.entries(given).filter(([, value]) => value !== ""));
      const to = name === "move" ? { version: version === "" ? null : version } : {};
      last.value = await act<AdminAct>(acts[name].endpoint, { filters: `${kept}`, ...to });
    });
  const ofAll =
    asked === null ? "" : `${more ? "at least " : ""}${meant(asked)} ${meant(asked) === 1 ? "run" : "runs"}`;
  return (
    <>
      {start.value?.may_write === true && isFiltered && (may("cancel") || may("retry") || may("move")) && (
        <p class="buttons">
          {asked === null &&
            (["cancel", "retry", "move"] as const).filter(may).map((name) => (
              <button key={name} type="button" class="quiet" onClick={() => setAsked(name)}>
                {acts[name].label}
              </button>
            ))}
          {asked !== null && (
            <span role="alertdialog" aria-label={acts[asked].label}>
              The filters match {ofAll}.{" "}
              {asked === "move" && (
                <label>
                  To the version{" "}
                  <input
                    value={version}
                    placeholder="none"
                    onInput={({ currentTarget }) => setVersion(currentTarget.value)}
                  />{" "}
                </label>
              )}
              <button type="button" class="danger" onClick={() => begin(asked)}>
                {acts[asked].verb} {ofAll}
              </button>{" "}
              <button type="button" class="quiet" onClick={() => setAsked(null)}>
                Leave them
              </button>
            </span>
          )}
        </p>
      )}
      {problem !== null && <Notice kind="error">{problem}</Notice>}
      {last.value !== null && <Progress of={last.value} say={setProblem} />}
    </>
  );
}

/** Says what is wrong; null: nothing. */
type Say = (problem: string | null) => void;

async function attempt(say: Say, what: () => Promise<unknown>): Promise<void> {
  try {
    await what();
    say(null);
  } catch (error) {
    say(messageOf(error));
  }
}

function Progress({ of, say }: { readonly of: AdminAct; readonly say: Say }) {
  const { run_id, status, matched, done, left, refused, errors, finished_at } = of;
  useEffect(() => {
    if (finished_at !== null) return undefined;
    const timer = setInterval(() => {
      if (document.hidden) return;
      void attempt(say, async () => {
        const now = await ask<AdminAct>(addressOf("many", { run_id }));
        if (last.peek()?.run_id === run_id) last.value = now;
      });
    }, POLL_MS);
    return () => clearInterval(timer);
  }, [run_id, finished_at, say]);
  const figures = [`${done} of ${matched} ${acts[of.act].done}`, `${left} left alone`, `${refused} refused`];
  return (
    <section class="card" aria-label="Progress">
      <p role="status">
        {status === "completed" ? "Done" : finished_at !== null ? `The act has ${status}` : "At work"}:{" "}
        {figures.join(", ")}.
      </p>
      {errors.length > 0 && (
        <details>
          <summary>
            {errors.length < refused ? `The first ${errors.length} that refused` : "Those that refused"}
          </summary>
          <ul>
            {errors.map((error) => (
              <li key={error.run_id}>
                <a href={hrefToRun(error)}>{error.run_id}</a>: {error.message}
              </li>
            ))}
          </ul>
        </details>
      )}
      <p class="buttons">
        {finished_at === null ? (
          <button type="button" class="quiet" onClick={() => attempt(say, () => act("stop-many", { run_id }))}>
            Stop
          </button>
        ) : (
          <button
            type="button"
            class="quiet"
            onClick={() => {
              last.value = null;
            }}
          >
            Close
          </button>
        )}
      </p>
    </section>
  );
}
