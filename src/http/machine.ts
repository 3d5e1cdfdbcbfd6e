/* What protocols need of the machine. */

/** The cryptography of the web. */
export const { subtle } = crypto;

export function randomId(): string {
  return crypto.randomUUID();
}

export function randomSecret(): Uint8Array<ArrayBuffer> {
  return crypto.getRandomValues(new Uint8Array(32));
}
