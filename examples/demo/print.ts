/** The lines of the demo: who, what, and a text. */

const hasColours = process.stdout.isTTY && process.stdout.hasColors();

const WHO = 12;
const WHAT = 8;

export function print(who: string, what: string, text: string): void {
  process.stdout.write(`${beginning(who, what)}${text}\n`);
}

/** The columns before a text. */
export function beginning(who: string, what: string): string {
  return `${coloured(2, who.padEnd(WHO))}${coloured(1, what.padEnd(WHAT))}`;
}

/** The text in the red of a terminal. */
export function red(text: string): string {
  return coloured(31, text);
}

function coloured(code: number, text: string): string {
  return hasColours ? `\u001B[${code}m${text}\u001B[0m` : text;
}
