/** The language of the browser. Import it before uPlot, which fails as it is loaded where the browser names none. */
export const language = languageOf();

function languageOf(): string {
  try {
    new Intl.NumberFormat(navigator.language);
  } catch {
    // On a system without a language some browsers name one such as "en-US@posix".
    Object.defineProperty(navigator, "language", { value: "en", configurable: true });
  }
  return navigator.language;
}
