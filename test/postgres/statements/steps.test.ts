import { createHash } from "node:crypto";
import { postgresSchemaSql } from "cadenza/postgres";
import { expect, it } from "vitest";

/*
 * Each step of the schema as the schemas in use have taken it. A step that changes reaches no schema that has taken it, as a
 * mend of a function did once. So what is new goes into a step at the end, and a hash here changes only where a later step
 * makes again what that step made.
 */
const TAKEN: readonly string[] = [
  "b3bf886e8176",
  "e5239f53c610",
  "0d10a14b79b9",
  "522b30aacba8",
  "c31ca6b5855e",
  "c820f94a1839",
  "66b314c79cfe",
  "8574bac495d9",
  "178a2b3d0442",
  "6675eaaea70c",
  "7ac634e77b5a",
  "bd247770dba4",
  "1d1d87f8678b",
  "ef7a1ae993c6",
  "6a04966ba54c",
  "3d8e37adc030",
  "dfe36b2a373c",
  "34756263a755",
  "8810fea63105",
  "dec7a854b632",
  "a127c7127f33",
  "652369d4a722",
  "fd56bb302d9a",
];

it("no step of the schema changes once schemas have taken it", () => {
  const steps = postgresSchemaSql("cadenza").split(/^(?=DO \$migration\$)/m);
  expect(steps.map((sql) => createHash("sha256").update(sql).digest("hex").slice(0, 12))).toEqual(TAKEN);
});
