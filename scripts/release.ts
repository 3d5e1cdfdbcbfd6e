/**
 * Publishes the version that package.json names, from a clean checkout of its tag: `npx tsx scripts/release.ts`. Without
 * `--publish` it does all but the last step, and says what would be published.
 *
 * The registry gets a statement of provenance: which commit and which workflow have built the package. npm makes it only
 * in a workflow that may ask for an identity token, which .github/workflows/release.yml does.
 */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

const { publish } = parseArgs({ options: { publish: { type: "boolean", default: false } } }).values;
const { version } = JSON.parse(readFileSync(`${ROOT}package.json`, "utf8")) as { readonly version: string };

if (ask("git", "status", "--porcelain") !== "") refuse("The working copy has changes. Commit or remove them.");
if (!ask("git", "tag", "--points-at", "HEAD").split("\n").includes(`v${version}`))
  refuse(`HEAD has no tag v${version}. Tag the commit that is to be published.`);
if (
  !new RegExp(`^## \\[?${version.replaceAll(".", "\\.")}(?![\\w.-])`, "m").test(
    readFileSync(`${ROOT}CHANGELOG.md`, "utf8"),
  )
)
  refuse(`CHANGELOG.md has no section "## ${version}".`);
const changes = readdirSync(`${ROOT}.changeset`).filter((file) => file.endsWith(".md") && file !== "README.md");
if (changes.length > 0)
  refuse(`CHANGELOG.md lacks ${changes.join(", ")} of .changeset/. Run npx @changesets/cli version, and commit.`);

// `npm ci` and `npm run check` end with the package packed, installed and used, with its notices and its bill of materials.
run("bash", ".ci/run");
run("npm", "publish", "--access", "public", "--provenance", ...(publish ? [] : ["--dry-run"]));

function ask(command: string, ...parameters: readonly string[]): string {
  return execFileSync(command, parameters, { cwd: ROOT, encoding: "utf8" }).trim();
}

function run(command: string, ...parameters: readonly string[]): void {
  execFileSync(command, parameters, { cwd: ROOT, stdio: "inherit" });
}

function refuse(why: string): never {
  console.error(why);
  process.exit(1);
}
