import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** The links and pictures of a page that lead nowhere among the files of a folder. Links to other sites are left out. */
export function deadLinks(folder: string, page: string): readonly string[] {
  return linksOf(read(folder, page)).filter((target) => !isThere(folder, page, target));
}

/** The addresses of files of the repository that are in a text and lead nowhere among the files of a folder. */
export function deadAddresses(folder: string, text: string): readonly string[] {
  const found = text.matchAll(/https:\/\/github\.com\/cadenza-agents\/cadenza\/(?:blob|tree)\/main\/([\w./#-]+)/g);
  return [...found].flatMap(([address, path = ""]) => (isThere(folder, "", path) ? [] : [address]));
}

function linksOf(text: string): readonly string[] {
  const found = text.matchAll(/\]\(([^)\s]+)\)|\b(?:src|srcset|href)="([^"]+)"/g);
  const targets = [...found].map(([, target = "", ofElement = ""]) => target || ofElement);
  return targets.filter((target) => !/^[a-z]+:/.test(target));
}

function isThere(folder: string, from: string, target: string): boolean {
  const [file = "", anchor] = target.split("#");
  const path = file === "" ? from : join(dirname(from), file);
  return existsSync(join(folder, path)) && (anchor === undefined || anchorsOf(read(folder, path)).includes(anchor));
}

/** The anchors that a page's headings get. */
function anchorsOf(text: string): readonly string[] {
  return [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, "")
      .replaceAll(" ", "-"),
  );
}

function read(folder: string, page: string): string {
  return readFileSync(join(folder, page), "utf8");
}
