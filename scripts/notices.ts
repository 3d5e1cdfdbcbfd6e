import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Metafile } from "esbuild";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
/** The licence files that the project keeps, of packages that ship none. */
export const keptLicences: Readonly<Record<string, string>> = {
  "@iconify-json/lucide": join(ROOT, "src/inspector-page/lucide-licence.txt"),
};

/** A package whose code, or a part of it, is inside a built file. */
interface Bundled {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  /** Its licence file, whole. */
  readonly notice: string;
}

/** The names of the packages from which the built files of esbuild have code. */
export function packagesIn({ outputs }: Metafile): readonly string[] {
  const names = new Set<string>();
  for (const { inputs } of Object.values(outputs))
    for (const [path, { bytesInOutput }] of Object.entries(inputs)) {
      const name = /^.*node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1];
      if (name !== undefined && bytesInOutput > 0) names.add(name);
    }
  return [...names];
}

/** The notices that the licences of bundled packages ask for. Throws for a package without a licence file. */
export function noticesOf(names: Iterable<string>): string {
  const sections = bundled(names).map(
    ({ name, version, license, notice }) => `## ${name} ${version}\n\n${license}\n\n\`\`\`text\n${notice}\n\`\`\`\n`,
  );
  return ["# Third-party notices\n\nThe built files of cadenza contain code of these packages.\n", ...sections].join(
    "\n",
  );
}

/** The bill of materials of the package in CycloneDX 1.6: the packages inside the built files, and those that npm installs. */
export function billOfMaterials(names: Iterable<string>): string {
  const { name, version, license, dependencies } = manifest(ROOT);
  const ref = `pkg:npm/${name}@${version}`;
  const inside = bundled(names).map((one) => component(one.name, one.version, one.license, "bundled"));
  const beside = Object.keys(dependencies ?? {})
    .filter((dependency) => !inside.some((one) => one.name === dependency))
    .map((dependency) => {
      const installed = manifest(folderOf(dependency));
      return component(dependency, installed.version, installed.license, "installed");
    });
  const components = [...inside, ...beside];
  const bill = {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: {
      component: { type: "library", "bom-ref": ref, name, version, purl: ref, licenses: [licensed(license)] },
    },
    components,
    dependencies: [{ ref, dependsOn: components.map((one) => one["bom-ref"]) }],
  };
  return `${JSON.stringify(bill, null, 2)}\n`;
}

function bundled(names: Iterable<string>): readonly Bundled[] {
  return [...new Set(names)].sort().map((name) => {
    const folder = folderOf(name);
    const own = readdirSync(folder).find((entry) => /^(licen[cs]e|copying)(-mit)?(\.\w+)?$/i.test(entry));
    const file = own === undefined ? keptLicences[name] : join(folder, own);
    if (file === undefined) throw new Error(`${name} is in the built files, and has no licence file`);
    const { version, license } = manifest(folder);
    return { name, version, license, notice: readFileSync(file, "utf8").trim() };
  });
}

function component(name: string, version: string, license: string, how: "bundled" | "installed") {
  const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
  const properties = [{ name: "cadenza:delivery", value: how }];
  return { type: "library", "bom-ref": purl, name, version, purl, licenses: [licensed(license)], properties } as const;
}

function licensed(id: string) {
  return id.includes(" OR ") ? { expression: id } : { license: { id } };
}

function folderOf(name: string): string {
  const folder = join(ROOT, "node_modules", name);
  if (!existsSync(folder)) throw new Error(`${name} is in the built files, and is not installed`);
  return folder;
}

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

function manifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Manifest;
}
