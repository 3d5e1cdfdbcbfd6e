/** A command cannot do what it was asked to. Its message is for the user. */
export class CommandError extends Error {}

/** The command line is not understood. */
export class UsageError extends CommandError {}

/**
 * A text that a terminal shows as it is. What agents were told may hold characters that a terminal obeys, or that change
 * the order of the others: they are shown by their numbers.
 */
export function printable(text: string): string {
  return text.replace(/[^\P{Cc}\n\t]|\p{Bidi_Control}/gu, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}
