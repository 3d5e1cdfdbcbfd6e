import { command } from "../harness/commands/commands.ts";
import { runTests } from "../harness/commands/vitest.ts";

export const trial = command({
  about: "Posts a cancel, a message and an answer between any two entries of each scenario.",
  options: {},
  run: (_, report) => runTests(report, ["test/durable/posts.test.ts"], { CADENZA_POSTS: "all" }),
});
