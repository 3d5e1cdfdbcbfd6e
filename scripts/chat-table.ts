/**
 * Writes the table of docs/chat-pages.md from the rows of test/browser/chat-rows.ts, which are tested in a browser:
 * `npx tsx scripts/chat-table.ts`.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { withChatTable } from "../test/browser/chat-table.ts";

const file = new URL("../docs/chat-pages.md", import.meta.url);
writeFileSync(file, withChatTable(readFileSync(file, "utf8")));
