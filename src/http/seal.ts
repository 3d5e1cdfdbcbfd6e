import type { JsonObject, JsonValue } from "../protocol/json.ts";
import { randomSecret, subtle } from "./machine.ts";

type HmacKey = Awaited<ReturnType<typeof subtle.importKey>>;

/**
 * Tokens that a client keeps for the server. A client can read what is in one, and cannot change it: each carries an
 * HMAC-SHA-256 of its content, its purpose, and whom it was made for. Comparing takes the same time wherever two differ.
 */
export class Seal {
  readonly #name: string;
  readonly #secrets: readonly Uint8Array<ArrayBuffer>[];
  #keys: Promise<readonly HmacKey[]> | undefined;

  /**
   * `name`: the name of the protocol, whose tokens no other one takes. `secrets`: the first one seals, and all of them verify.
   * None: a random one.
   */
  constructor(name: string, secrets: readonly string[]) {
    this.#name = name;
    this.#secrets = secrets.length > 0 ? secrets.map((secret) => encoder.encode(secret)) : [randomSecret()];
  }

  async seal(purpose: string, holder: JsonValue, content: JsonObject): Promise<string> {
    const text = encodeURIComponent(JSON.stringify(content));
    const [key] = (await this.#imported()) as readonly [HmacKey];
    const mac = new Uint8Array(await subtle.sign("HMAC", key, this.#signed(purpose, holder, text)));
    return `${text}~${Array.from(mac, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  }

  /** The content of a token. Undefined: it is not one of this purpose and holder. */
  async open(purpose: string, holder: JsonValue, token: unknown): Promise<JsonObject | undefined> {
    if (typeof token !== "string") return undefined;
    const [, text, hex = ""] = /^([\x21-\x7e]+)~([\da-f]{64})$/.exec(token) ?? [];
    if (text === undefined) return undefined;
    const mac = Uint8Array.from(hex.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));
    let isGenuine = false;
    // All keys are tried, so that the time does not tell which one has sealed it.
    for (const key of await this.#imported())
      isGenuine = (await subtle.verify("HMAC", key, mac, this.#signed(purpose, holder, text))) || isGenuine;
    return isGenuine ? (JSON.parse(decodeURIComponent(text)) as JsonObject) : undefined;
  }

  #signed(purpose: string, holder: JsonValue, text: string): Uint8Array<ArrayBuffer> {
    return encoder.encode(JSON.stringify([this.#name, purpose, holder, text]));
  }

  #imported(): Promise<readonly HmacKey[]> {
    this.#keys ??= Promise.all(
      this.#secrets.map((secret) =>
        subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign", "verify"]),
      ),
    );
    return this.#keys;
  }
}

const encoder = new TextEncoder();
