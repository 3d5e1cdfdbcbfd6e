import { computed, signal } from "@preact/signals";
import { decoded } from "./decoded.ts";

/** Where the user is: the part of the address after `#`. */
export interface Place {
  readonly path: readonly string[];
  readonly query: URLSearchParams;
}

function read(): Place {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").map(decoded), query: new URLSearchParams(query) };
}

export const place = signal(read());
addEventListener("hashchange", () => {
  place.value = read();
});

/** Which view is shown: another query shows the same one. */
export const view = computed(() => hrefTo(place.value.path));

type Query = Readonly<Record<string, string>>;

/** The address of a place within the page. Empty values are left out of its query. */
export function hrefTo(path: readonly string[], query: Query = {}): string {
  const kept = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""));
  return `#/${path.map(encodeURIComponent).join("/")}${kept.size === 0 ? "" : `?${kept}`}`;
}

export function hrefToRun({ tenant, run_id }: { readonly tenant: string; readonly run_id: string }): string {
  return hrefTo(["run", tenant, run_id]);
}

export function goTo(href: string): void {
  location.hash = href;
}

/** A value in the query of the address; empty if there is none. */
export function inQuery(name: string): string {
  return place.value.query.get(name) ?? "";
}

/** The address of the same place with other values in its query. Values that are not named stay. */
export function hereWith(changed: Query): string {
  const { path, query } = place.value;
  return hrefTo(path, { ...Object.fromEntries(query), ...changed });
}

/** Changes values in the query of the address. Does nothing if the user has just gone elsewhere. */
export function setQuery(changed: Query): void {
  // The address changes at once, and the page hears of it in a later turn.
  if (hrefTo(read().path) !== hrefTo(place.peek().path)) return;
  history.replaceState(null, "", hereWith(changed));
  place.value = read();
}
