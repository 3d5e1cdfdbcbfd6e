import type { RunHead } from "../../core/ports.ts";
import { headColumns } from "../stored-rows.ts";
import type { Connection, SqliteValue } from "./database.ts";
import { fromHead } from "./rows.ts";

/* The row of a run, as a write reads and changes it. */

/** The columns that a write may change. */
const changing = [
  ...headColumns,
  "wakes",
  "look",
  "line",
  "turn",
  "since",
  "came_at",
  "position",
  "arrived",
  "slot",
  "slot_max",
  "limits",
] as const;
/** The columns come as one list, which drivers return in half the time of as many columns. */
const selectRun = `
  SELECT json_array(id, agent_name, priority, gate, ${changing.join(", ")}) AS run
  FROM cadenza_runs WHERE tenant = ? AND run_id = ?`;

/** Whether a due run may be set aside for a pause of its tenant. A process that takes one with a slot or a priority sets it aside. */
export const mayWait = `(owner IS NULL AND slot IS NULL AND priority = 0 AND status <> 'cancelling'
  AND (plain IS NULL OR status = 'created' AND takeovers = 0))`;
/** The live runs of other priorities than 0, and those with gates, that have owners or are due at a time. */
export const isApart = `finished_at IS NULL AND (priority <> 0 OR gate IS NOT NULL)
  AND (owner IS NOT NULL OR due_at IS NOT NULL) AND (owner IS NOT NULL OR line IS NULL)`;
/** Where a run stands among the due ones. */
export const place = "coalesce(came_at, due_at)";

/** Where a run stands among the due ones. */
export interface DuePlace {
  readonly due_at: number;
  readonly id: number;
}

/** What a write reads of a run, as it is stored. */
export type RunRow = Readonly<ReturnType<typeof toRow>>;

/** The columns of `selectRun`, in its order. */
type Columns = readonly [
  id: number,
  agent_name: string,
  priority: number,
  gate: string | null,
  status: string,
  epoch: number,
  owner: string | null,
  due_at: number | null,
  blocked: string | null,
  holds_slot: number,
  finished_at: number | null,
  takeovers: number,
  wakes: number,
  look: number,
  line: string | null,
  turn: number | null,
  since: number | null,
  came_at: number | null,
  position: number,
  arrived: number,
  slot: string | null,
  slot_max: number | null,
  limits: string | null,
];

/** The row of a run; undefined if it does not exist. Tenant and id are given as they are stored. */
export function findRow(connection: Connection, tenant: string, runId: string): RunRow | undefined {
  const found = connection.get(selectRun, tenant, runId);
  return found && toRow(JSON.parse(String(found["run"])) as Columns);
}

/** Writes every column out, since spreading takes longer. */
function toRow(columns: Columns) {
  const [
    id,
    agent_name,
    priority,
    gate,
    status,
    epoch,
    owner,
    due_at,
    blocked,
    holds_slot,
    finished_at,
    takeovers,
    wakes,
    look,
    line,
    turn,
    since,
    came_at,
    position,
    arrived,
    slot,
    slot_max,
    limits,
  ] = columns;
  return {
    id,
    agent_name,
    priority,
    gate,
    status,
    epoch,
    owner,
    due_at,
    blocked,
    holds_slot,
    finished_at,
    takeovers,
    wakes,
    look,
    line,
    turn,
    since,
    came_at,
    position,
    arrived,
    slot,
    slot_max,
    limits,
  };
}

/** What a write changes of a run besides its head and its length. */
interface Changes {
  /** Left out: a change of owner resets it. */
  readonly wakes?: number | undefined;
  /** Left out: it stays. */
  readonly arrived?: number | undefined;
  readonly look: number;
  readonly line: string | null;
  readonly turn: number | null;
  readonly since: number | null;
  readonly came_at: number | null;
  /** Left out: these stay. */
  readonly slot?: string | undefined;
  readonly slot_max?: number | undefined;
  readonly limits?: string | null | undefined;
}

/** Only columns that change are written: SQLite updates an index if one of its columns is written. */
export function updateRow(
  connection: Connection,
  run: RunRow,
  head: RunHead,
  position: number,
  { wakes, look, line, turn, since, came_at, arrived = run.arrived, ...slots }: Changes,
): void {
  const values = fromHead(head);
  const owner = values[headColumns.indexOf("owner")];
  values.push(wakes ?? (owner === run.owner ? run.wakes : 0), look, line, turn, since, came_at, position, arrived);
  values.push(slots.slot ?? run.slot, slots.slot_max ?? run.slot_max, slots.limits ?? run.limits);
  const written: SqliteValue[] = [];
  let columns = 0;
  for (const [index, name] of changing.entries()) {
    const value = values[index] ?? null;
    if (run[name] === value) continue;
    columns |= 1 << index;
    written.push(value);
  }
  if (columns !== 0) connection.run(updateOf(columns), ...written, run.id);
}

/** The statements that write columns, by the set of these columns as bits. */
const updates = new Map<number, string>();

function updateOf(columns: number): string {
  let update = updates.get(columns);
  if (update === undefined) {
    const names = changing.filter((_name, index) => (columns & (1 << index)) !== 0);
    update = `UPDATE cadenza_runs SET ${names.map((name) => `${name} = ?`).join(", ")} WHERE id = ?`;
    updates.set(columns, update);
  }
  return update;
}

/** Names the due runs of priority 0 of an agent, with or without gates. */
export function kindOf(hasGate: boolean, agent: readonly (string | null)[]): string {
  return JSON.stringify([hasGate, ...agent]);
}
