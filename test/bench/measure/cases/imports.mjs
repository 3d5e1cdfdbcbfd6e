import { library } from "../subjects/library.mjs";

/** The modules that a user of each subject imports. */
const modules = {
  zod: ["zod"],
  cadenza: [library],
  a2a: ["@a2a-js/sdk", "@a2a-js/sdk/server"],
  langgraph: ["@langchain/langgraph"],
  mastra: ["@mastra/core/mastra", "@mastra/core/storage", "@mastra/core/workflows"],
  xstate: ["xstate"],
};

/** The time that it takes to import a package. */
export async function measureImport(name) {
  const started = performance.now();
  for (const module of modules[name]) await import(module);
  return { milliseconds: performance.now() - started };
}
