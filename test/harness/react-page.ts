import { JSDOM } from "jsdom";
import type { ReactNode } from "react";
import { act } from "react";
import type { Root } from "react-dom/client";
import { afterEach, beforeEach, vi } from "vitest";

/** Gives each test of a file an empty page, and a function that shows something in it. */
export function reactPage(): (node: ReactNode) => Promise<void> {
  let root: Root;
  beforeEach(async () => {
    const { window } = new JSDOM("<main></main>");
    vi.stubGlobal("window", window);
    vi.stubGlobal("document", window.document);
    vi.stubGlobal("navigator", window.navigator);
    vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
    const { createRoot } = await import("react-dom/client");
    root = createRoot(window.document.querySelector("main") as Parameters<typeof createRoot>[0]);
  });
  afterEach(() => {
    act(() => root.unmount());
    vi.unstubAllGlobals();
  });
  return (node) => act(async () => root.render(node));
}
