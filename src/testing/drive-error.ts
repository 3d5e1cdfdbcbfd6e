/** A mistake in a test: it asks the agent for something that cannot be. The message says what to do instead. */
export class DriveError extends Error {
  override readonly name = "DriveError";
}
