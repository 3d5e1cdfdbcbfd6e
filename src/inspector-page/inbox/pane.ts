import type { ViewKey } from "../keyboard.tsx";

const PANE = "#question";

/** Puts the focus on the question that is shown: a reader hears it, and no field takes the keys. */
export function focusPane(): void {
  // The question is drawn first.
  setTimeout(() => {
    const pane = document.querySelector<HTMLElement>(PANE);
    pane?.focus({ preventScroll: true });
    const top = pane?.getBoundingClientRect().top ?? 0;
    if (top < 0 || top > innerHeight / 2) pane?.scrollIntoView();
  });
}

function focusIn(selector: string): void {
  document.querySelector<HTMLElement>(`${PANE} ${selector}`)?.focus();
}

/** Keys that go to what answers a question. None answers by itself: `Enter` presses what has the focus. */
export const pressKeys: readonly ViewKey[] = [
  { keys: ["y"], shown: "y, n", what: "go to yes, no; Enter answers", act: () => focusIn("[data-key=y]") },
  { keys: ["n"], act: () => focusIn("[data-key=n]") },
  {
    keys: ["1", "2", "3", "4", "5"],
    shown: "1 … 5",
    what: "go to a choice; Enter answers",
    act: (key) => focusIn(`[data-key="${key}"]`),
  },
  { keys: ["a"], what: "go into the form", act: () => focusIn("form :is(input, textarea, select, button)") },
  {
    keys: ["d"],
    what: "decline, with a reason",
    act: () => document.querySelector<HTMLElement>(`${PANE} [data-decline]`)?.click(),
  },
  { keys: ["o"], what: "open the run", act: () => document.querySelector<HTMLElement>(`${PANE} h2 a`)?.click() },
];
