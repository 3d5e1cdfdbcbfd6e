import { join } from "node:path";
import type { Store } from "cadenza/store";
import { describe } from "vitest";
import { newerLogCases } from "../../harness/newer-logs.ts";
import { temporaryFolder } from "../../harness/sqlite-files.ts";
import { lastingStore } from "../../harness/store-proxy.ts";
import { openFile } from "../../harness/world/replicas.ts";

describe("in memory", () =>
  newerLogCases((act) => {
    let store: Store | undefined;
    return act((clock) => {
      store ??= lastingStore(clock);
      return store;
    });
  }));

describe("on a file", () =>
  newerLogCases(async (act) => {
    const folder = temporaryFolder();
    await act((clock) => openFile(join(folder.path, "runs.db"), clock));
    folder.remove();
  }));
