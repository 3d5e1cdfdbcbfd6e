import { batch, signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ListEvent } from "../inspector/api.ts";
import { refusalIn } from "./server.ts";

/** Whether what is shown is up to date. */
export const connection = signal<"connecting" | "open" | "lost">("connecting");

const RETRY_MS = 2_000;

/**
 * Calls back with each event of a feed, while the view is shown and the tab is visible: a browser allows six connections
 * to a server. Gives why the feed was refused, or null.
 */
export function useFeed<Event>(address: string, onEvent: (event: Event) => void): string | null {
  const [refused, setRefused] = useState<string | null>(null);
  const latest = useRef(onEvent);
  latest.current = onEvent;
  useEffect(() => {
    const leave = new AbortController();
    let source: EventSource | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const close = (): void => {
      source?.close();
      source = undefined;
      clearTimeout(timer);
    };
    const open = (): void => {
      close();
      source = new EventSource(address);
      source.onopen = () => {
        connection.value = "open";
        setRefused(null);
      };
      source.onmessage = ({ data }) => batch(() => latest.current(JSON.parse(data as string) as Event));
      source.onerror = () => {
        connection.value = "lost";
        // A browser connects again by itself, but not after a refusal.
        if (source?.readyState === EventSource.CLOSED) void again();
      };
    };
    const again = async (): Promise<void> => {
      close();
      const response = await fetch(address, { signal: leave.signal }).catch(() => undefined);
      if (leave.signal.aborted) return;
      if (response !== undefined && !response.ok) {
        setRefused((await refusalIn(response)).message);
        connection.value = "open";
      }
      void response?.body?.cancel().catch(() => undefined);
      timer = setTimeout(open, RETRY_MS);
    };
    const onVisible = (): void => {
      if (document.hidden) close();
      else open();
    };
    connection.value = "connecting";
    setRefused(null);
    document.addEventListener("visibilitychange", onVisible);
    if (!document.hidden) open();
    return () => {
      leave.abort();
      document.removeEventListener("visibilitychange", onVisible);
      close();
    };
  }, [address]);
  return refused;
}

/** What is known of a list. */
export interface Listed<Item> {
  /** Null: not known yet. */
  readonly items: readonly Item[] | null;
  readonly more: boolean;
  readonly refused: string | null;
  /** The processes that execute runs, with true for those that are alive. */
  readonly workers: ReadonlyMap<string, boolean>;
}

const nothing = { items: null, more: false, workers: new Map<string, boolean>() };

/** The items of a list, kept up to date. */
export function useList<Item>(address: string, idOf: (item: Item) => string): Listed<Item> {
  const [state, setState] = useState<Omit<Listed<Item>, "refused"> & { readonly address: string }>({
    ...nothing,
    address,
  });
  const refused = useFeed<ListEvent<Item>>(address, (event) =>
    setState((before) => {
      const workers =
        event.workers === undefined
          ? before.workers
          : new Map(event.workers.map(({ worker, is_alive }) => [worker, is_alive]));
      if (event.type === "page") return { address, items: event.items, more: event.more, workers };
      return { ...before, workers, items: changed(before.items ?? [], event, idOf) };
    }),
  );
  // What is there belongs to another list until the first event comes.
  return state.address === address ? { ...state, refused } : { ...nothing, refused };
}

function changed<Item>(
  items: readonly Item[],
  event: Extract<ListEvent<Item>, { readonly type: "change" }>,
  idOf: (item: Item) => string,
): readonly Item[] {
  const gone = new Set(event.gone);
  const now = new Map(event.changed.map((item) => [idOf(item), item]));
  const added = new Set(event.added.map(idOf));
  const kept = items.flatMap((item) => {
    const id = idOf(item);
    return gone.has(id) || added.has(id) ? [] : [now.get(id) ?? item];
  });
  return [...event.added, ...kept];
}
