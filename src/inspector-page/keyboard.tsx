import { signal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { goTo } from "./place.ts";

const places: Readonly<Record<string, string>> = {
  r: "#/runs",
  q: "#/questions",
  s: "#/stuck",
  n: "#/new",
  c: "#/schedules",
  f: "#/figures",
};
const keys: readonly (readonly [string, string])[] = [
  ["j, k", "the next, the former line"],
  ["Enter", "open it"],
  ["g r", "runs"],
  ["g q", "questions"],
  ["g s", "stuck runs"],
  ["g n", "a new run"],
  ["g c", "schedules"],
  ["g f", "figures"],
  ["← →", "in a picture: close, open a line"],
  ["+ - 0", "in a picture: less, more, all of the time"],
  ["[ ]", "in a picture: earlier, later"],
  ["/", "search"],
  ["?", "these keys"],
  ["Ctrl Enter", "in a form: send it"],
  ["Esc", "close, or leave a field"],
];

/** What keys do in one view. */
export interface ViewKey {
  readonly keys: readonly string[];
  /** As the help names them; left out: the first of them. */
  readonly shown?: string;
  /** Left out: another one says it. */
  readonly what?: string;
  readonly act: (key: string) => void;
}

const viewKeys = signal<readonly ViewKey[]>([]);

/** Has keys do something while a view is shown. They come before those of the page. */
export function useViewKeys(keys: readonly ViewKey[]): void {
  useEffect(() => {
    viewKeys.value = keys;
  });
  useEffect(
    () => () => {
      viewKeys.value = [];
    },
    [],
  );
}

const isHelpOpen = signal(false);

/** Shows what the keys do. */
export function showKeys(): void {
  isHelpOpen.value = true;
}

/** Listens to keys, wherever the user is but in a field. */
export function Keyboard() {
  useEffect(() => {
    let isGoing = false;
    const onKey = (event: KeyboardEvent): void => {
      const { key, target } = event;
      if (key === "Escape") {
        if (isHelpOpen.value) isHelpOpen.value = false;
        else if (target instanceof HTMLElement) target.blur();
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || isField(target)) return;
      const to = isGoing ? places[key] : undefined;
      isGoing = key === "g";
      const own = viewKeys.peek().find(({ keys: known }) => known.includes(key));
      if (to !== undefined) goTo(to);
      else if (own !== undefined && !isHelpOpen.peek()) own.act(key);
      else if (key === "j" || key === "k") move(key === "j" ? 1 : -1);
      else if (key === "/") search();
      else if (key === "?") showKeys();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return <Help />;
}

function isField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input, textarea, select");
}

/** Goes to the field that finds runs, which is in their list. */
function search(): void {
  const field = document.querySelector<HTMLElement>("input[type=search]");
  if (field !== null) {
    field.focus();
    return;
  }
  goTo("#/runs");
  const drawn = new MutationObserver(() => {
    const there = document.querySelector<HTMLElement>("input[type=search]");
    if (there === null) return;
    drawn.disconnect();
    there.focus();
  });
  drawn.observe(document.body, { childList: true, subtree: true });
}

/** Goes to the next line of the view. */
function move(by: 1 | -1): void {
  const lines = [...document.querySelectorAll<HTMLElement>("main [data-row]")];
  const at = lines.findIndex((line) => line.contains(document.activeElement));
  const next = lines[at === -1 ? (by === 1 ? 0 : lines.length - 1) : Math.min(lines.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function helpOf(own: readonly ViewKey[]): readonly (readonly [string, string])[] {
  return own.flatMap(({ keys: [first = ""], shown = first, what }) =>
    what === undefined ? [] : [[shown, what] as const],
  );
}

function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useSignalEffect(() => {
    if (isHelpOpen.value) dialog.current?.showModal();
    else dialog.current?.close();
  });
  const close = (): void => {
    isHelpOpen.value = false;
  };
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="keys">
      <h2 id="keys">Keys</h2>
      <dl class="keys">
        {[...helpOf(viewKeys.value), ...keys].map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <button type="button" onClick={close}>
        Close
      </button>
    </dialog>
  );
}
