/** A mistake in a test: it asks for something that the agent cannot do. The message says what to do instead. */
export class DriveError extends Error {
  override readonly name = "DriveError";
}
