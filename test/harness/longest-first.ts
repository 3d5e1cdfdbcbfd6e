import type { TestSpecification } from "vitest/node";
import { BaseSequencer } from "vitest/node";

/*
 * Without the times of an earlier run, vitest begins with the largest files. A small file that takes long would begin
 * last, and all processors but one would wait for it.
 */

/** The files that take longest, the longest first. */
const LONGEST: readonly string[] = [
  // Of the first stage.
  "test/durable/trials/trials.test.ts",
  "test/durable/trials/isolation.test.ts",
  "test/schedules/times.test.ts",
  "test/durable/trials/crash-points.test.ts",
  "test/docs/snippets.test.ts",
  // Of the second.
  "test/postgres/contract/contract.test.ts",
  "test/cli/command-line.system.test.ts",
  "test/docs/programs.system.test.ts",
  "test/browser/deployment.system.test.ts",
  "test/browser/inspector.system.test.ts",
  "test/docs/site.system.test.ts",
  "test/browser/chat-matrix.system.test.ts",
  "test/durable/trials/faults.system.test.ts",
  "test/postgres/runs/killed-processes.test.ts",
  "test/postgres/contract/pglite.test.ts",
];

/** Begins each stage with these files, and leaves all others in the order of vitest. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const rank = ({ moduleId }: TestSpecification): number => {
      const index = LONGEST.findIndex((file) => moduleId.endsWith(file));
      return index < 0 ? LONGEST.length : index;
    };
    const stage = ({ project }: TestSpecification): number => project.config.sequence.groupOrder;
    return sorted.sort((one, other) => stage(one) - stage(other) || rank(one) - rank(other));
  }
}
