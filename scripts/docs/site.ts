import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { TypeDocOptions } from "typedoc";
import { Application, Converter, IndexEvent, Logger, LogLevel, ReflectionKind } from "typedoc";
import { entryNames } from "../entries.ts";
import { REFERENCE } from "./reference.ts";

/*
 * The documentation as a site: the pages of `docs/`, and the API from the docstrings, with a search in both. It is made by
 * TypeDoc, and needs no server: its files work from a disk, too. A link that leads nowhere is a mistake.
 */

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** The folders of `docs/`, as groups in this order. */
const GROUPS = ["Tutorial", "Guides", "Concepts", "Reference", "Project"] as const;

/** What the entries are made of, and do not export. */
const PARTS = "Parts";

/**
 * How much more a word counts in a page than in the API. The name of a method counts some hundred times as much as a word
 * in a long page: with these a page that tells of a subject comes first, and a name that is typed whole is still shown.
 */
const SEARCH_BOOSTS = { Tutorial: 400, Guides: 400, Concepts: 400, Reference: 400, Project: 100 };

/** How much less a part counts than what is exported. */
const PARTS_BOOST = 0.1;

/** @returns What is wrong with the pages; nothing for a good site. */
export async function buildSite(folder: string): Promise<readonly string[]> {
  const app = await Application.bootstrapWithPlugins(optionsOf(folder));
  const problems = new Problems();
  app.logger = problems;
  app.converter.on(Converter.EVENT_CREATE_DOCUMENT, (_, document) => {
    const path = document.project.files.getReflectionPath(document) ?? "";
    const group = GROUPS.find((one) => one.toLowerCase() === basename(dirname(path)));
    document.name = titleOf(path);
    if (group !== undefined) document.frontmatter["group"] = group;
  });
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    // On the site, a link to a page of the reference leads to the entry's own page.
    for (const module of project.getReflectionsByKind(ReflectionKind.Module)) {
      module.name = module.name.replace(/^src(?=$|\/)/, "cadenza");
      const file = join(ROOT, REFERENCE, `${module.name.replaceAll("/", "-")}.md`);
      project.files.registerReflectionPath(file as never, module);
    }
    project.files.registerReflectionPath(join(ROOT, REFERENCE, "README.md") as never, project);
  });
  app.renderer.on(IndexEvent.PREPARE_INDEX, ({ searchResults }) => {
    for (const result of searchResults)
      if (result.getFullName().includes(`${PARTS}.`)) result.relevanceBoost = PARTS_BOOST;
  });
  const project = await app.convert();
  if (project === undefined) return problems.found;
  app.validate(project);
  await app.generateDocs(project, folder);
  return problems.found;
}

/** What TypeDoc finds wrong. */
class Problems extends Logger {
  readonly found: string[] = [];

  override log(message: string, level: LogLevel): void {
    if (level >= LogLevel.Warn) this.found.push(message);
  }
}

function titleOf(path: string): string {
  const [, title = basename(path)] = /^# (.+)$/m.exec(readFileSync(path, "utf8")) ?? [];
  return title.replaceAll("`", "");
}

function optionsOf(folder: string): TypeDocOptions & { readonly internalModule: string } {
  return {
    name: "Cadenza",
    out: folder,
    tsconfig: join(ROOT, "scripts/docs/tsconfig.json"),
    basePath: ROOT,
    entryPoints: entryNames.map((name) => join(ROOT, "src", `${name}.ts`)),
    projectDocuments: [join(ROOT, "docs/*/*.md")],
    readme: join(ROOT, "docs/README.md"),
    plugin: ["typedoc-plugin-missing-exports"],
    excludeExternals: true,
    excludeInternal: true,
    excludePrivate: true,
    disableSources: true,
    disableGit: true,
    skipErrorChecking: true,
    // Docstrings may link to what is not exported.
    validation: {
      invalidPath: true,
      invalidLink: false,
      notExported: false,
      rewrittenLink: false,
      unusedMergeModuleWith: false,
    },
    includeHierarchySummary: false,
    useFirstParagraphOfCommentAsSummary: true,
    searchInComments: true,
    searchInDocuments: true,
    searchGroupBoosts: SEARCH_BOOSTS,
    groupOrder: [...GROUPS, "*"],
    navigation: { includeGroups: true, includeFolders: false },
    navigationLeaves: [],
    hideGenerator: true,
    highlightLanguages: [
      "bash",
      "css",
      "html",
      "http",
      "javascript",
      "json",
      "jsx",
      "nginx",
      "sh",
      "sql",
      "toml",
      "tsx",
      "typescript",
      "yaml",
    ],
    internalModule: PARTS,
    customCss: join(ROOT, "scripts/docs/site.css"),
    markdownItLoader: (parser: MarkdownParser) => void parser.core.ruler.push("plain_headings", plainHeadings),
  };
}

/** What is used of the parser that TypeDoc has. */
interface MarkdownParser {
  readonly core: {
    readonly ruler: { push(name: string, rule: (state: { readonly tokens: readonly Token[] }) => void): void };
  };
}

interface Token {
  type: string;
  readonly children?: readonly Token[] | null;
}

/** TypeDoc makes anchors of a heading's text alone. Code in a heading becomes text, so that anchors are as on GitHub. */
function plainHeadings({ tokens }: { readonly tokens: readonly Token[] }): void {
  for (const [index, { type }] of tokens.entries())
    if (type === "heading_open")
      for (const child of tokens[index + 1]?.children ?? []) if (child.type === "code_inline") child.type = "text";
}
