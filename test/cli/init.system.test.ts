import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { createClient } from "cadenza/client";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import { openBrowser, until } from "../browser/browser.ts";
import { Command } from "../harness/inspected/processes.ts";

const project = inject("projectFolder");
const browser = await openBrowser();

/** Node 20 and the first ones of Node 22 have neither TypeScript nor SQLite. */
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
const isOld = major < 22 || (major === 22 && minor < 18);

/** Calls the command, below the project so that the application finds its packages. */
async function init(...args: readonly string[]): Promise<{ readonly code: number | null; readonly said: string }> {
  const cwd = join(project, "apps");
  mkdirSync(cwd, { recursive: true });
  const program = [join(project, "node_modules/cadenza/dist/cli.js")];
  const command = new Command(["init", ...args], { cwd, program });
  return { code: await command.ended(), said: command.output };
}

/** An application in a folder of its own. */
async function application(name: string): Promise<string> {
  const folder = join(project, "apps", name);
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  expect(await init(name)).toMatchObject({ code: 0 });
  return folder;
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Starts what a script of the application starts, without npm between the two: a signal reaches the process itself. */
function start(folder: string, script: "start" | "worker", env: NodeJS.ProcessEnv): Command {
  const { scripts } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as typeof packageJson;
  const [, ...program] = (scripts as Record<string, string>)[script]?.split(" ") ?? [];
  const command = new Command([], { cwd: folder, program, env: { ...env, MODEL: "mock" } });
  onTestFinished(() => void command.stop("SIGKILL"));
  return command;
}

describe.runIf(isOld)("cadenza init on an old Node", () => {
  it("says which one the application needs, and makes nothing", async () => {
    const { code, said } = await init("old");
    expect(code).toBe(1);
    expect(said).toMatch(/^cadenza: The application needs Node 22\.18 or newer/);
    expect(existsSync(join(project, "apps/old"))).toBe(false);
  });
});

describe.skipIf(isOld)("cadenza init", () => {
  it("makes an application, and says what to do next in three lines", async () => {
    const folder = join(project, "apps/My desk");
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    expect(await init("My desk")).toEqual({
      code: 0,
      said: 'Made an application in "My desk". What to do next:\n\n  cd "My desk"\n  npm install\n  npm run dev\n',
    });
    const read = (file: string): string => readFileSync(join(folder, file), "utf8");
    const { name, dependencies, devDependencies } = JSON.parse(read("package.json"));
    expect(name).toBe("my-desk");
    expect(dependencies).toEqual({
      ai: packageJson.devDependencies.ai,
      cadenza: `^${packageJson.version}`,
      zod: packageJson.dependencies.zod,
    });
    expect(devDependencies.typescript).toBe(`^${packageJson.devDependencies.typescript}`);
    expect(read(".env")).toMatch(/^INSPECTOR_TOKEN=[\w-]{32}$/m);
    expect(read(".gitignore").split("\n")).toContain(".env");
  });

  it("asks nothing where there is no terminal, and has a folder by default", async () => {
    onTestFinished(() => rmSync(join(project, "apps/cadenza-app"), { recursive: true, force: true }));
    expect((await init("--yes")).said).toContain("\n  cd cadenza-app\n");
    expect(await init()).toEqual({
      code: 1,
      said: "cadenza: cadenza-app is not empty. Name a folder that is empty or does not exist.\n",
    });
  });

  it("takes a link to an empty folder, and no file", async () => {
    const apps = join(project, "apps");
    const target = join(apps, "target");
    const file = join(apps, "file");
    onTestFinished(() => {
      for (const name of ["target", "link", "file"]) rmSync(join(apps, name), { recursive: true, force: true });
    });
    mkdirSync(target, { recursive: true });
    symlinkSync(target, join(apps, "link"));
    writeFileSync(file, "");
    expect((await init("link")).code).toBe(0);
    expect(existsSync(join(target, "package.json"))).toBe(true);
    expect(await init("file")).toEqual({ code: 1, said: `cadenza: ENOTDIR: not a directory, scandir '${file}'\n` });
  });

  it("takes a folder that is empty but for git, and no other", async () => {
    for (const [name, file] of [
      ["versioned", ".git/HEAD"],
      ["used", "a.txt"],
    ] as const) {
      const folder = join(project, "apps", name);
      onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      writeFileSync(join(folder, file), "");
    }
    expect((await init("versioned")).code).toBe(0);
    expect((await init("used")).code).toBe(1);
    expect(existsSync(join(project, "apps/used/package.json"))).toBe(false);
  });

  it("names the tarball that it was installed from", async () => {
    const lock = join(project, "node_modules/.package-lock.json");
    onTestFinished(() => rmSync(lock, { force: true }));
    writeFileSync(
      lock,
      JSON.stringify({ packages: { "node_modules/cadenza": { resolved: "file:../cadenza-0.1.0.tgz" } } }),
    );
    onTestFinished(() => rmSync(join(project, "apps/packed"), { recursive: true, force: true }));
    const { said } = await init("packed");
    expect(said).toContain("cadenza-0.1.0.tgz, which must stay there: see its package.json.");
    const { dependencies } = JSON.parse(readFileSync(join(project, "apps/packed/package.json"), "utf8"));
    expect(dependencies.cadenza).toBe("file:../../../cadenza-0.1.0.tgz");
  });

  it("makes an application whose tests pass", { timeout: 60_000 }, async () => {
    const folder = await application("tested");
    const said = execFileSync("npm", ["test"], { cwd: folder, encoding: "utf8" });
    expect(said).toMatch(/^(?:#|ℹ) pass 7$/m);
    expect(said).toMatch(/^(?:#|ℹ) fail 0$/m);
  });

  it("makes an application whose tests end, and fail, where its agent fails", { timeout: 60_000 }, async () => {
    const folder = await application("broken");
    const file = join(folder, "src/agents.ts");
    writeFileSync(file, readFileSync(file, "utf8").replace("const sdk =", 'throw new Error("Broken."); const sdk ='));
    const { status, stdout } = spawnSync("npm", ["test"], { cwd: folder, encoding: "utf8" });
    expect(status).toBe(1);
    expect(stdout).toMatch(/^(?:#|ℹ) fail [1-7]$/m);
    expect(stdout).toContain("Error: Broken");
  });

  it("makes an application whose server may be killed while it waits for an answer", { timeout: 60_000 }, async () => {
    const folder = await application("killed");
    const port = await freePort();
    const first = start(folder, "start", { PORT: `${port}` });
    await first.printed(/\nModel {6}a built-in model/);
    const client = createClient({ url: `http://127.0.0.1:${port}/api`, attempts: 50, backoffMs: 100 });
    const run = await client.run("desk", "I want my money back.");
    const asked = new Promise<string>((resolve) => {
      const stop = run.watch(() => {
        const [question] = run.view.questions;
        if (question === undefined) return;
        stop();
        resolve(question.await_id);
      });
    });
    const await_id = await asked;
    await first.stop("SIGKILL");

    const second = start(folder, "start", { PORT: `${port}` });
    await run.answer({ await_id }, { approved: true });
    await run.result();
    expect(JSON.stringify((await run.record()).output)).toContain("way.");
    expect(await second.stop("SIGTERM")).toBe(0);
  });

  it.skipIf(browser === undefined)("makes a chat page that asks and goes on", { timeout: 60_000 }, async () => {
    onTestFinished(async () => browser?.close());
    const folder = await application("seen");
    const server = start(folder, "start", { PORT: `${await freePort()}` });
    const address = await server.printed(/(?<=Chat {7})http:\S+/);
    const page = await browser?.newPage();
    if (page === undefined) throw new Error("There is no page.");
    await page.goto(address);
    await page.type("input", "I want a refund for my train");
    await page.click("button[type=submit]");
    await until(page, "document.querySelector('legend')?.textContent === 'Refund 40 €?'");
    await page.reload();
    await until(page, "document.querySelector('fieldset button') !== null");
    await page.click("fieldset button");
    await until(page, "document.body.innerText.includes('The 40 € are on their way.')");
    expect(await page.$$eval("article", (all) => all.length)).toBe(2);
  });
});
