import { chatRows, chatTransports, chatVersions, expectedOf } from "./chat-rows.ts";

const columns = chatTransports.flatMap((transport) => chatVersions.map((version) => ({ transport, version })));

const lines = [
  [
    "What a page does",
    ...columns.map(({ transport, version }) => `\`${transport}\`, ${version.replace(" ", "&nbsp;")}`),
  ],
  ["", ...columns.map(() => "")].map(() => "---"),
  ...chatRows.map((row) => [row.name, ...columns.map(({ transport, version }) => expectedOf(row, transport, version))]),
];

/** A page of the documentation with the table of what the rows declare, in the place of the one that it has. */
export function withChatTable(page: string): string {
  const table = lines.map((cells) => `| ${cells.join(" | ")} |\n`).join("");
  return page.replace(/^\| What a page does \|.*\n(?:\|.*\n)*/m, () => table);
}
