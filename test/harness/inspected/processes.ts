import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { javascriptOf, write } from "../project.ts";

/** The command, as it is installed in a project. */
const INSTALLED = "node_modules/cadenza/dist/cli.js";
const WRITER = "inspected-writer.mjs";

/** How a command is started. */
interface StartOptions {
  readonly cwd: string;
  /** The program and the options of Node before it. Default: the installed command. */
  readonly program?: readonly string[] | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
}

/** `cadenza` in a process of its own. */
export class Command {
  readonly #process: ChildProcess;
  readonly #ended: Promise<readonly [code: number | null]>;
  readonly #watchers = new Set<() => void>();
  output = "";

  constructor(args: readonly string[], { cwd, program = [INSTALLED], env = {} }: StartOptions) {
    this.#process = spawn(process.execPath, [...program, ...args], {
      cwd,
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    for (const stream of [this.#process.stdout, this.#process.stderr])
      stream?.setEncoding("utf8").on("data", (text: string) => {
        this.output += text;
        for (const watcher of this.#watchers) watcher();
      });
    this.#ended = once(this.#process, "close") as Promise<[number | null]>;
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  /** Waits until it has printed so many matches, and gives the last one. Rejects if it ends before. */
  printed(pattern: RegExp, count = 1): Promise<string> {
    return new Promise((resolve, reject) => {
      const look = (): void => {
        const found = [...this.output.matchAll(new RegExp(pattern, "g"))];
        if (found.length < count) return;
        this.#watchers.delete(look);
        resolve(found.at(-1)?.[0] ?? "");
      };
      this.#watchers.add(look);
      this.#ended.then(() => reject(new Error(`cadenza ended, and had printed: ${this.output}`)), reject);
      look();
    });
  }

  /** The address that it has printed last. */
  address(count = 1): Promise<URL> {
    return this.printed(/http:\/\/\S+(?=\n)/, count).then((text) => new URL(text));
  }

  /** Sends a signal, and waits for the end. */
  async stop(signal: NodeJS.Signals = "SIGINT"): Promise<number | null> {
    this.#process.kill(signal);
    return this.ended();
  }

  async ended(): Promise<number | null> {
    const [code] = await this.#ended;
    return code;
  }
}

/** What the writer answers to an order. */
export interface WriterAnswer {
  readonly run_id: string;
  readonly runs: number;
  readonly busy: number;
  /** When it was acknowledged. */
  readonly at: number;
}

/** The process of `writer.ts`, in a project. */
export class Writer {
  readonly #process: ChildProcess;
  readonly #answers: AsyncIterator<string>;

  constructor(cwd: string, file: string) {
    write(cwd, WRITER, javascriptOf(readFileSync(new URL("./writer.ts", import.meta.url), "utf8")));
    this.#process = spawn(process.execPath, [WRITER, file], { cwd, stdio: ["pipe", "pipe", "inherit"] });
    if (this.#process.stdout === null) throw new Error("the writer has no output");
    this.#answers = createInterface({ input: this.#process.stdout })[Symbol.asyncIterator]();
  }

  async order(line: string): Promise<WriterAnswer> {
    this.#process.stdin?.write(`${line}\n`);
    const { value, done } = await this.#answers.next();
    if (done) throw new Error(`the writer ended before it answered: ${line}`);
    return JSON.parse(value) as WriterAnswer;
  }

  async stop(signal: NodeJS.Signals): Promise<void> {
    const ended = once(this.#process, "close");
    this.#process.kill(signal);
    await ended;
  }
}

/** A browser, as far as an inspector sees it. */
export class Browser {
  readonly #address: URL;
  readonly #cookie: string;

  private constructor(address: URL, cookie: string) {
    this.#address = address;
    this.#cookie = cookie;
  }

  /** Opens the address with the token, and keeps the cookie. */
  static async open(address: URL): Promise<Browser> {
    const response = await fetch(address);
    const [cookie = ""] = (response.headers.get("set-cookie") ?? "").split(";");
    if (!response.ok || cookie === "")
      throw new Error(`the page was refused: ${response.status} ${await response.text()}`);
    return new Browser(address, cookie);
  }

  get(path: string): Promise<Response> {
    return fetch(new URL(path, this.#address), { headers: { cookie: this.#cookie } });
  }

  post(path: string, body: object): Promise<Response> {
    return fetch(new URL(path, this.#address), {
      method: "POST",
      headers: { cookie: this.#cookie, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  }

  /** The events of a feed. Leaving the loop closes it. */
  async *feed(path: string): AsyncGenerator<unknown, void, undefined> {
    const response = await this.get(path);
    if (!response.ok || response.body === null) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    let text = "";
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      const events = text.split("\n\n");
      text = events.pop() ?? "";
      for (const event of events) {
        const data = event.split("\n").filter((line) => line.startsWith("data:"));
        if (data.length > 0) yield JSON.parse(data.map((line) => line.slice("data:".length)).join("\n")) as unknown;
      }
    }
  }

  /** The first event of a feed whose JSON matches. */
  async first(path: string, pattern: RegExp): Promise<string> {
    for await (const event of this.feed(path)) {
      const json = JSON.stringify(event);
      if (pattern.test(json)) return json;
    }
    throw new Error(`${path} ended without ${pattern}`);
  }

  /** A run, once it has completed, as JSON. A feed that began before tells of each change alone. */
  async completed(run_id: string): Promise<string> {
    const path = `api/feed/run?tenant=&run_id=${run_id}`;
    // A step of it may have completed before.
    const completed = new RegExp(`"run_id":"${run_id}","status":"completed"`);
    await this.first(path, completed);
    return this.first(path, completed);
  }
}
