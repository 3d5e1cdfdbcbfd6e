import { useEffect, useRef, useState } from "preact/hooks";
import type { InboxEvent, InboxQuestion } from "../../inspector/api.ts";
import { questionItemId } from "../../inspector/api.ts";
import { useFeed } from "../feed.ts";
import { Icon } from "../icons.tsx";
import { useViewKeys } from "../keyboard.tsx";
import { hereWith, inQuery, setQuery } from "../place.ts";
import { addressOf, start } from "../server.ts";
import { Age, Contained, count, Empty, Notice, now } from "../words.tsx";
import { AnsweredList } from "./answered.tsx";
import { Asked } from "./asked.tsx";
import { focusPane, pressKeys } from "./pane.ts";

/** How many questions the list has at first, and at most. */
const STEP = 100;
const MOST = 1_000;
/** A question that expires within so long, in milliseconds, is marked. */
const SOON_MS = 3_600_000;

const sorts = [
  ["", "oldest first"],
  ["newest", "newest first"],
  ["deadline", "deadline"],
  ["agent", "agent"],
  ["tenant", "tenant"],
] as const;

/** The open questions of all tenants, or of one, to be answered one after the other. */
export function InboxView() {
  const isAnswered = inQuery("show") === "answered";
  return (
    <>
      <div class="heading">
        <h1>Questions</h1>
        <fieldset class="choices" aria-label="View">
          <button type="button" aria-pressed={!isAnswered} onClick={() => setQuery({ show: "" })}>
            <Icon is="question" />
            Open
          </button>
          <button type="button" aria-pressed={isAnswered} onClick={() => setQuery({ show: "answered" })}>
            <Icon is="done" />
            Answered
          </button>
        </fieldset>
      </div>
      {isAnswered ? <AnsweredList /> : <Open />}
    </>
  );
}

function Open() {
  const [inbox, setInbox] = useState<InboxEvent | null>(null);
  const [said, setSaid] = useState("");
  /** What was answered here. The server tells it a moment later. */
  const [done, setDone] = useState<ReadonlySet<string>>(new Set());
  const limit = Math.min(MOST, Number(inQuery("limit")) || STEP);
  const filters = { agent: inQuery("agent"), tenant: inQuery("tenant"), sort: inQuery("sort") };
  const address = addressOf("feed/questions", { ...filters, limit: String(limit) });
  const refused = useFeed<InboxEvent>(address, setInbox);
  const items = (inbox?.items ?? []).filter((item) => !done.has(questionItemId(item)));
  const ids = items.map(questionItemId);
  const at = inQuery("at");
  const isReady = inbox !== null && inbox.reading === null;
  const first = isReady ? ids[0] : undefined;
  useEffect(() => {
    // Named in the address, so that a question which comes before it does not take its place.
    if (at === "" && first !== undefined) setQuery({ at: first });
  }, [at, first]);
  const choose = (id: string | undefined): void => {
    if (id === undefined) return;
    setSaid("");
    setQuery({ at: id });
    focusPane();
  };
  const index = ids.indexOf(at);
  const step = (by: 1 | -1): void => {
    // Keys may come faster than the page is drawn.
    const now = ids.indexOf(inQuery("at"));
    choose(now === -1 ? ids[0] : ids[now + by]);
  };
  const onSettled = (how: string): void => {
    setDone(new Set([...done, at]));
    setSaid(`${how}. `);
    setQuery({ at: ids[index + 1] ?? ids[index - 1] ?? "" });
    focusPane();
  };
  const total = (inbox?.total ?? 0) - ((inbox?.items.length ?? 0) - items.length);
  useViewKeys([
    { keys: ["j"], shown: "j, k", what: "the next, the former question", act: () => step(1) },
    { keys: ["k"], act: () => step(-1) },
    ...pressKeys,
  ]);
  if (refused !== null) return <Notice>{refused}</Notice>;
  if (inbox === null) return <p role="status">Loading …</p>;
  return (
    <>
      <search class="filters">
        <label>
          Order
          <select value={filters.sort} onChange={({ currentTarget }) => setQuery({ sort: currentTarget.value })}>
            {sorts.map(([name, label]) => (
              <option key={name} value={name}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <Counted label="Agent" name="agent" of={inbox.agents} chosen={filters.agent} />
        {start.value?.tenant === null && (
          <Counted label="Tenant" name="tenant" of={inbox.tenants} chosen={filters.tenant} />
        )}
      </search>
      <p class="count" role="status">
        {said}
        {inbox.reading !== null
          ? `Reading ${inbox.reading.toLocaleString()} waiting runs …`
          : `${count(total, "open question")}${inbox.more ? " of the newest 20,000 waiting runs" : ""}`}
      </p>
      <div class={at === "" ? undefined : "inbox"}>
        <div class="asking">
          {isReady && items.length === 0 ? (
            <Nothing isFiltered={filters.agent !== "" || filters.tenant !== ""} />
          ) : (
            <ul aria-label="Open questions">
              {items.map((item) => (
                <li key={questionItemId(item)}>
                  <Line
                    item={item}
                    isChosen={questionItemId(item) === at}
                    onChoose={() => choose(questionItemId(item))}
                  />
                </li>
              ))}
            </ul>
          )}
          {inbox.total > limit && limit < MOST && (
            <button type="button" onClick={() => setQuery({ limit: String(Math.min(MOST, limit * 2)) })}>
              Show more
            </button>
          )}
        </div>
        {at !== "" && (
          <Contained key={at}>
            <Asked
              id={at}
              isListed={index !== -1}
              place={index === -1 ? null : `${index + 1} of ${total.toLocaleString()}`}
              onFormer={index > 0 ? () => step(-1) : undefined}
              onNext={(index === -1 ? ids.length > 0 : index + 1 < ids.length) ? () => step(1) : undefined}
              onSettled={onSettled}
            />
          </Contained>
        )}
      </div>
    </>
  );
}

function Nothing({ isFiltered }: { readonly isFiltered: boolean }) {
  if (!isFiltered)
    return <Empty is="No run waits for an answer.">A question of any agent appears here at once, with its form.</Empty>;
  return (
    <Empty is="No question matches the filters.">
      <a href="#/questions">Show all questions</a>
    </Empty>
  );
}

/** Of which agent or tenant questions are shown, with how many there are. */
function Counted({
  label,
  name,
  of,
  chosen,
}: {
  readonly label: string;
  readonly name: "agent" | "tenant";
  readonly of: InboxEvent["agents"];
  readonly chosen: string;
}) {
  const isThere = chosen === "" || of.some((one) => one.name === chosen);
  const all = isThere ? of : [...of, { name: chosen, questions: 0 }];
  // An empty name cannot be told from no filter.
  return (
    <label>
      {label}
      <select value={chosen} onChange={({ currentTarget }) => setQuery({ [name]: currentTarget.value, at: "" })}>
        <option value="">all</option>
        {all
          .filter((one) => one.name !== "")
          .map((one) => (
            <option key={one.name} value={one.name}>
              {one.name} ({one.questions.toLocaleString()})
            </option>
          ))}
      </select>
    </label>
  );
}

function Line({
  item,
  isChosen,
  onChoose,
}: {
  readonly item: InboxQuestion;
  readonly isChosen: boolean;
  readonly onChoose: () => void;
}) {
  const { text, agent_name, tenant, labels, kind, since, expires_at } = item;
  const link = useRef<HTMLAnchorElement>(null);
  useEffect(() => {
    if (isChosen) link.current?.scrollIntoView({ block: "nearest" });
  }, [isChosen]);
  const isSoon = expires_at !== null && Date.parse(expires_at) - now.value < SOON_MS;
  return (
    <a
      ref={link}
      href={hereWith({ at: questionItemId(item) })}
      aria-current={isChosen ? "true" : undefined}
      onClick={(event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        onChoose();
      }}
    >
      <span class="text">{text === "" ? "(no text)" : text}</span>
      <span class="number faint">
        <Age of={since} />
      </span>
      <span class="faint">
        {[agent_name, tenant, ...Object.values(labels), kind === "input" ? "" : kind]
          .filter((one) => one !== "")
          .join(" · ")}
      </span>
      {expires_at !== null && (
        <span class={isSoon ? "number soon" : "number faint"}>
          expires <Age of={expires_at} />
        </span>
      )}
    </a>
  );
}
