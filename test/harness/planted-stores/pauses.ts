import { MemoryStore } from "cadenza";
import type { Store } from "cadenza/store";
import type { BrokenStore } from "./broken-store.ts";
import { broken } from "./broken-store.ts";

type Runs = Parameters<Store["resume"]>[0];
type NewPause = Parameters<Store["pause"]>[0];
type By = Parameters<Store["pause"]>[1];

const all = "pauses: all of them, the oldest first, each with its time and who has asked for it";
const once = "pauses: the same runs are paused once, and resumed once";
const sooner = "pauses: one of the same runs becomes one with `now`, and keeps its time and who has asked";
const others = "pauses: those that name other things are others";
const order = "pauses: runs that were set aside are not taken, and come back in their order";
const aside =
  "pauses: a take sets the due runs of a paused tenant aside, each with its own time, and gives those behind them";
const shared = "pauses: what a run of a paused agent or version gets of a slot goes to those of others at once";
const keeps =
  "pauses: a run of a paused agent keeps its permit while none but runs of its version wait, and one of a dead owner gives it back";
const covered = "pauses: none comes back that a pause of its tenant covers";

/** Faults in `pauses`, `pause`, `resume` and `comeBack`. */
export const pausesFaults: readonly BrokenStore[] = [
  withPauses("pauses gives the newest first", all, (pauses) => pauses.toReversed()),
  withPauses("pauses gives no time", all, (pauses) => pauses.map((pause) => ({ ...pause, at: 0 }))),
  withPauses("pauses does not say who has asked", all, (pauses) => pauses.map((pause) => ({ ...pause, by: null }))),
  broken(
    "pause takes the place of the pause of the same runs",
    once,
    class extends MemoryStore {
      override pause(runs: NewPause, by: By): boolean {
        super.resume(runs);
        return super.pause(runs, by);
      }
    },
  ),
  broken(
    "resume says that it has resumed what is not paused",
    once,
    class extends MemoryStore {
      override resume(runs: Runs): boolean {
        super.resume(runs);
        return true;
      }
    },
  ),
  withNames("pause does not keep `now`", sooner, ({ now: _now, ...runs }) => runs),
  broken(
    "pause leaves the pause of the same runs as it is",
    sooner,
    class extends MemoryStore {
      override pause(pause: NewPause, by: By): boolean {
        const isKnown = super.pauses().some(({ agent_name }) => agent_name === pause.agent_name);
        return !isKnown && super.pause(pause, by);
      }
    },
  ),
  broken(
    "pause with `now` is a new pause",
    sooner,
    class extends MemoryStore {
      override pause(pause: NewPause, by: By): boolean {
        const isKnown = super
          .pauses()
          .some(({ agent_name, now }) => agent_name === pause.agent_name && now === undefined);
        if (isKnown && pause.now === true) super.resume(pause);
        return super.pause(pause, by);
      }
    },
  ),
  withNames("pause takes an agent without a version for all its versions", others, ({ version, ...runs }) =>
    version === null ? runs : { ...runs, version },
  ),
  withNames("pause takes a tenant without a name for all tenants", others, ({ tenant, ...runs }) =>
    tenant === "" ? runs : { ...runs, tenant },
  ),
  withBack("comeBack brings none back", order, () => 0),
  withBack("comeBack does not say how many have come back", order, (back, limit) => {
    back(limit);
    return 0;
  }),
  withBack(
    "comeBack ignores the limit",
    "pauses: so many come back as the caller allows, those that are due first",
    (back) => back(1_000),
  ),
  broken(
    "comeBack brings back what is paused",
    covered,
    class extends MemoryStore {
      override comeBack(limit: number): number {
        return withoutPauses(this, () => super.comeBack(limit));
      }
    },
  ),
  broken(
    "take gives what is paused",
    aside,
    class extends MemoryStore {
      override take(request: Parameters<MemoryStore["take"]>[0]): ReturnType<MemoryStore["take"]> {
        return withoutPauses(this, () => super.take(request));
      }
    },
  ),
  broken(
    "take gives nothing while there is something to set aside",
    aside,
    class extends MemoryStore {
      override take(request: Parameters<MemoryStore["take"]>[0]): ReturnType<MemoryStore["take"]> {
        const taken = super.take(request);
        return super.pauses().length > 0 ? [] : taken;
      }
    },
  ),
  broken(
    "comeBack leaves the runs of a tenant as long as one of its agents is paused",
    covered,
    class extends MemoryStore {
      override comeBack(limit: number): number {
        const added = super.pauses().flatMap(({ tenant }) => (tenant === undefined ? [] : [{ tenant }]));
        const paused = added.filter((runs) => super.pause(runs, null));
        const back = super.comeBack(limit);
        for (const runs of paused) super.resume(runs);
        return back;
      }
    },
  ),
  broken(
    "a run that is set aside stays so when it is woken",
    "pauses: a run that is woken or has an owner is not set aside any more",
    class extends MemoryStore {
      override post(...[key, post]: Parameters<MemoryStore["post"]>): ReturnType<MemoryStore["post"]> {
        const isAside = (super.find(key)?.head.due_at ?? 0) > 8_640_000_000_000_000;
        return super.post(key, isAside ? { ...post, due: undefined } : post);
      }
    },
  ),
  broken(
    "a run that is set aside keeps its permit",
    "pauses: a run that is set aside gives its permit to the next, and needs one when it is back",
    class extends MemoryStore {
      override append(...[key, expected, write]: Parameters<MemoryStore["append"]>): ReturnType<MemoryStore["append"]> {
        const holds_slot = write.head.holds_slot || (write.head.due_at ?? 0) > 8_640_000_000_000_000;
        return super.append(key, expected, { ...write, head: { ...write.head, holds_slot } });
      }
    },
  ),
  broken(
    "a run of a paused agent keeps what it gets of a slot",
    shared,
    class extends MemoryStore {
      override take(request: Parameters<MemoryStore["take"]>[0]): ReturnType<MemoryStore["take"]> {
        return withoutPauses(
          this,
          () => super.take(request),
          ({ tenant, version }) => tenant === undefined && version === undefined,
        );
      }
    },
  ),
  broken(
    "a run of a paused version keeps what it gets of a slot",
    shared,
    class extends MemoryStore {
      override take(request: Parameters<MemoryStore["take"]>[0]): ReturnType<MemoryStore["take"]> {
        return withoutPauses(
          this,
          () => super.take(request),
          ({ version }) => version !== undefined,
        );
      }
    },
  ),
  broken(
    "a run gives its permit back if another version of its agent is paused",
    shared,
    class extends MemoryStore {
      override take(request: Parameters<MemoryStore["take"]>[0]): ReturnType<MemoryStore["take"]> {
        const added = super
          .pauses()
          .flatMap(({ agent_name, version }) => (version === undefined ? [] : [{ agent_name }]));
        const paused = added.filter((runs) => super.pause(runs, null));
        const taken = super.take(request);
        for (const runs of paused) super.resume(runs);
        return taken;
      }
    },
  ),
  broken(
    "a run of a dead owner keeps the permit of its paused agent",
    keeps,
    class extends MemoryStore {
      override take(request: Parameters<MemoryStore["take"]>[0]): ReturnType<MemoryStore["take"]> {
        return withoutPauses(
          this,
          () => super.take(request),
          () => super.workers().some(({ is_alive }) => !is_alive),
        );
      }
    },
  ),
  broken(
    "a paused run gives its permit back although no other one waits",
    keeps,
    class extends MemoryStore {
      override take(request: Parameters<MemoryStore["take"]>[0]): ReturnType<MemoryStore["take"]> {
        const isPaused = (agent: string): boolean => super.pauses().some(({ agent_name }) => agent_name === agent);
        const taken = super.take(request);
        for (const { key, created, head } of super.list({ tenant: "acme", limit: 9, offset: 0 })) {
          if (!head.holds_slot || head.owner !== null || !isPaused(created.agent_name)) continue;
          const { position = 0 } = super.find(key) ?? {};
          const left = { ...head, epoch: head.epoch + 1, holds_slot: false, due_at: null };
          super.append(key, { epoch: head.epoch, position }, { entries: [], head: left });
        }
        return taken;
      }
    },
  ),
];

type Pauses = ReturnType<MemoryStore["pauses"]>;

/** A store that gives other pauses. */
function withPauses(fault: string, caughtBy: string, twist: (pauses: Pauses) => Pauses): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      override pauses(): Pauses {
        return twist(super.pauses());
      }
    },
  );
}

/** What a store answers as long as nothing is paused, or nothing of a kind. */
function withoutPauses<Answer>(
  store: MemoryStore,
  ask: () => Answer,
  which: (runs: Pauses[number]) => boolean = () => true,
): Answer {
  const pauses = store.pauses().filter(which);
  for (const pause of pauses) store.resume(pause);
  const answer = ask();
  for (const { at: _at, by, ...runs } of pauses) store.pause(runs, by);
  return answer;
}

/** A store that pauses other runs. */
function withNames(fault: string, caughtBy: string, twist: (pause: NewPause) => NewPause): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      override pause(pause: NewPause, by: By): boolean {
        return super.pause(twist(pause), by);
      }
    },
  );
}

/** A store that brings runs back in another way. */
function withBack(
  fault: string,
  caughtBy: string,
  twist: (back: (limit: number) => number, limit: number) => number,
): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      override comeBack(limit: number): number {
        return twist((most) => super.comeBack(most), limit);
      }
    },
  );
}
