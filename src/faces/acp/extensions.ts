import { isNotFound } from "../../core/errors.ts";
import { userOf } from "../../core/user.ts";
import { readJson } from "../../http/body.ts";
import type { Caller } from "../../http/caller.ts";
import { unfitAt } from "../../http/errors.ts";
import { idempotencyKey, takeBody } from "../../http/service.ts";
import { checkChange, checkRun } from "../../http/visibility.ts";
import type { WireResponse } from "../../http/wire.ts";
import { json } from "../../http/wire.ts";
import { runIdSchema } from "../../protocol/identifier.ts";
import type { RunDetails } from "../../runtime/runs/requests.ts";
import type { AcpCall } from "./options.ts";
import { readWith } from "./requests.ts";

/* The endpoints that are not part of ACP. */

const MAX_NAME_LENGTH = 255;

/** `GET /runs/{run_id}/details`: the facts about a run that its record has no field for. */
export async function getDetails({ caller, parameter }: AcpCall): Promise<WireResponse> {
  await checkRun(caller, parameter);
  const details = await caller.scope.details(parameter);
  const visible = caller.sees === undefined ? details : await visibleDetails(caller, details);
  return json(200, withUserIds(visible), { "run-id": details.run_id });
}

/** `POST /runs/{run_id}/messages/{message_name}`: sends a message to a run. The whole body is the message. */
export async function sendMessage(call: AcpCall): Promise<WireResponse> {
  const { service, caller, second: name } = call;
  const key = idempotencyKey(call);
  const run_id = readWith(runIdSchema, call.parameter, ["run_id"]);
  if (name.length === 0 || name.length > MAX_NAME_LENGTH)
    throw unfitAt(["message_name"], `expected 1 to ${MAX_NAME_LENGTH} characters`);
  await checkChange(caller, run_id);
  const data = readJson(await takeBody(call), service.settings.limits);
  await caller.scope.send({ to: run_id, name, data }, { idempotencyKey: key });
  return json(202, { run_id }, { "run-id": run_id });
}

/** The details with the ids of users in the place of their principals, in which the host may have put what is not for clients. */
function withUserIds(details: RunDetails): RunDetails {
  const { cancelled_by, origin } = details;
  return {
    ...details,
    cancelled_by: userOf(cancelled_by) ?? null,
    origin: origin?.by === undefined ? origin : { ...origin, by: userOf(origin.by) ?? null },
  };
}

/** The details without the runs that do not exist for the caller. */
async function visibleDetails(caller: Caller, details: RunDetails): Promise<RunDetails> {
  const { run_id, parent_run_id, root_run_id, origin, children, await_requests } = details;
  const shown: string[] = [];
  for (const id of children) if (await isVisible(caller, id)) shown.push(id);
  const questions: RunDetails["await_requests"][number][] = [];
  for (const question of await_requests) {
    const isShown = question.of === null || (await isVisible(caller, question.of.run_id));
    questions.push(isShown ? question : { ...question, of: null });
  }
  return {
    ...details,
    await_requests: questions,
    parent_run_id: parent_run_id !== null && (await isVisible(caller, parent_run_id)) ? parent_run_id : null,
    root_run_id: (await isVisible(caller, root_run_id)) ? root_run_id : run_id,
    origin: origin !== null && (await isVisible(caller, origin.run_id)) ? origin : null,
    children: shown,
  };
}

async function isVisible(caller: Caller, runId: string): Promise<boolean> {
  try {
    await checkRun(caller, runId);
    return true;
  } catch (error) {
    if (isNotFound(error)) return false;
    throw error;
  }
}
