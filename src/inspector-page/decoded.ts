/** The text that was encoded for an address; the text itself where it was not. */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
