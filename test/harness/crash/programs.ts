import type { NamedProgram } from "../program.ts";
import { makeProgram } from "../program-maker.ts";
import { Random } from "../random.ts";

/** The program that belongs to a name: always the same. Its first and last words tell the run and its total. */
export function programOf(name: string): NamedProgram {
  const random = new Random(name);
  const made = makeProgram(random, {
    certainty: "logged",
    depth: 3,
    stepMs: 8,
    deadlineMs: 25,
    isAlone: false,
  });
  const word = (text: string) => ({ does: "emit", what: "part", text, by: "yield" }) as const;
  return { name, program: { ...made, body: [word(`${name}:`), ...made.body, word("=")] } };
}
