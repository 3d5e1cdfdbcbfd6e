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

/** Does something with a part of the question that is shown. Of a question that is loading: as soon as it is there. */
function inPane(selector: string, act: (part: HTMLElement) => void): void {
  const pane = document.querySelector(PANE);
  const part = pane?.querySelector<HTMLElement>(selector);
  if (part != null) act(part);
  else if (pane != null && isLoading(pane)) {
    const loaded = new MutationObserver(() => {
      if (isLoading(pane)) return;
      loaded.disconnect();
      const later = pane.querySelector<HTMLElement>(selector);
      if (later !== null) act(later);
    });
    loaded.observe(pane, { childList: true });
  }
}

function isLoading(pane: Element): boolean {
  return pane.querySelector(":scope > [role=status]") !== null;
}

const focus = (part: HTMLElement): void => part.focus();
const press = (part: HTMLElement): void => part.click();

/** Keys that go to what answers a question. None answers by itself: `Enter` presses what has the focus. */
export const pressKeys: readonly ViewKey[] = [
  { keys: ["y"], shown: "y, n", what: "go to yes, no; Enter answers", act: () => inPane("[data-key=y]", focus) },
  { keys: ["n"], act: () => inPane("[data-key=n]", focus) },
  {
    keys: ["1", "2", "3", "4", "5"],
    shown: "1 … 5",
    what: "go to a choice; Enter answers",
    act: (key) => inPane(`[data-key="${key}"]`, focus),
  },
  { keys: ["a"], what: "go into the form", act: () => inPane("form :is(input, textarea, select, button)", focus) },
  {
    keys: ["d"],
    what: "decline, with a reason",
    act: () => inPane("[data-decline]", press),
  },
  { keys: ["o"], what: "open the run", act: () => inPane("h2 a", press) },
];
