import type { RunHead } from "../../core/ports.ts";
import { toJson, toTextOrNull } from "../stored-rows.ts";
import type { SqliteValue } from "./database.ts";

/** The columns of a head, in the order of `headColumns`. */
export function fromHead(head: RunHead): SqliteValue[] {
  return [
    head.status,
    head.epoch,
    toTextOrNull(head.owner),
    head.due_at,
    head.blocked === null ? null : toJson(head.blocked),
    head.holds_slot ? 1 : 0,
    head.finished_at,
    head.takeovers,
  ];
}

/** The first entry, from the first batches `e`. */
export const createdColumn = "substr(e.lines, 1, instr(e.lines, char(10))) AS created";
