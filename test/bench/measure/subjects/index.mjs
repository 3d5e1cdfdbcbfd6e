/** The modules of the subjects. One is loaded at a time: most need packages that the others do not. */
const subjects = {
  bare: async () => (await import("./bare.mjs")).openBare(),
  "bare-duties": async () => (await import("./bare-duties.mjs")).openBareDuties(),
  cadenza: async () => (await import("./cadenza.mjs")).openCadenza(),
  "cadenza, asking": async () => (await import("./cadenza.mjs")).openCadenza({ asks: true }),
  "cadenza, late store": async () => (await import("./cadenza.mjs")).openCadenza({ isStoreLate: true }),
  a2a: async () => (await import("./a2a.mjs")).openA2a(),
  langgraph: async () => (await import("./langgraph.mjs")).openLanggraph(),
  mastra: async () => (await import("./mastra.mjs")).openMastra(),
  xstate: async () => (await import("./xstate.mjs")).openXstate(),
};

/**
 * Opens a subject. Each of them retains every run, and offers:
 * - `echo(text)`: a run that emits the text; `later(text)`: the same after a turn of the event loop.
 * - `stream(count, onPart)`: a run that emits `part 0`, `part 1`, …, read while it runs.
 * - `ask(question)`: a run that asks, and what it takes to answer it; `answer(waiting, text)`: makes it emit the
 *   answer.
 *
 * Each answers with the run's status; all but `stream` and `ask` also with the texts of its output.
 */
export function openSubject(name) {
  return subjects[name]();
}
