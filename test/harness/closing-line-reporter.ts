import type { Reporter, TestModule } from "vitest/node";

/**
 * Ends a test run with `N passed, N failed` (and `, N skipped`) alone on the last line, which CI reads.
 * A file or suite that breaks off and an error outside of any test count as failed.
 */
export class ClosingLineReporter implements Reporter {
  #line: string | undefined;

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    const counts = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    for (const module of modules) {
      counts.failed += module.errors().length;
      for (const suite of module.children.allSuites()) counts.failed += suite.errors().length;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        // A test that was never reached counts as failed.
        counts[state === "pending" ? "failed" : state] += 1;
      }
    }
    // The coverage table comes after this call, and the line has to be the last.
    if (this.#line === undefined) process.once("exit", () => process.stdout.write(`\n${this.#line}\n`));
    this.#line = `${counts.passed} passed, ${counts.failed} failed`;
    if (counts.skipped > 0) this.#line += `, ${counts.skipped} skipped`;
  }
}
