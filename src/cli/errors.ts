/** A command cannot do what it was asked to. Its message is for the user. */
export class CommandError extends Error {}

/** The command line is not understood. */
export class UsageError extends CommandError {}
