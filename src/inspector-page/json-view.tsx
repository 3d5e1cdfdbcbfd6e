import { useState } from "preact/hooks";

/** How many members of a list or an object are shown before the user asks for more. */
const SHOWN = 50;
/** How many characters of a text. */
const TEXT = 2_000;

/** A value, of which the user opens what is of interest. Closed parts are not in the page. */
export function Json({ value, name, open = false }: { value: unknown; name?: string | undefined; open?: boolean }) {
  if (typeof value !== "object" || value === null)
    return (
      <span class="json">
        <Key name={name} />
        <Plain value={value} />
      </span>
    );
  return <Tree value={value} name={name} open={open} />;
}

function Tree({ value, name, open }: { value: object; name: string | undefined; open: boolean }) {
  const [isOpen, setOpen] = useState(open);
  const [shown, setShown] = useState(SHOWN);
  const members = Object.entries(value);
  const [left, right] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (members.length === 0)
    return (
      <span class="json">
        <Key name={name} />
        {left}
        {right}
      </span>
    );
  return (
    <details class="json" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Key name={name} />
        {isOpen ? left : `${left} ${preview(members, Array.isArray(value))} ${right}`}
      </summary>
      {isOpen && (
        <ul>
          {members.slice(0, shown).map(([key, member]) => (
            <li key={key}>
              <Json name={key} value={member} />
            </li>
          ))}
          {members.length > shown && (
            <li>
              <button type="button" class="link" onClick={() => setShown(shown + 10 * SHOWN)}>
                {members.length - shown} more
              </button>
            </li>
          )}
        </ul>
      )}
    </details>
  );
}

function Key({ name }: { name: string | undefined }) {
  return name === undefined ? null : <span class="key">{name}: </span>;
}

function Plain({ value }: { value: unknown }) {
  if (typeof value !== "string") return <span class="plain">{String(value)}</span>;
  return <LongText text={value} quoted />;
}

/** A text, of which a long end is shown when the user asks for it. */
export function LongText({ text, quoted = false }: { text: string; quoted?: boolean }) {
  const [isOpen, setOpen] = useState(false);
  const quote = quoted ? '"' : "";
  if (text.length <= TEXT || isOpen) return <span class="text">{`${quote}${text}${quote}`}</span>;
  return (
    <span class="text">
      {quote}
      {text.slice(0, TEXT)}…{" "}
      <button type="button" class="link" onClick={() => setOpen(true)}>
        {(text.length - TEXT).toLocaleString()} more characters
      </button>
    </span>
  );
}

function preview(members: readonly (readonly [string, unknown])[], isList: boolean): string {
  const first = members.slice(0, 4).map(([key, value]) => (isList ? brief(value) : `${key}: ${brief(value)}`));
  const text = `${first.join(", ")}${members.length > 4 ? ", …" : ""}`;
  return text.length > 90 ? `${text.slice(0, 89)}…` : text;
}

function brief(value: unknown): string {
  if (Array.isArray(value)) return `[${value.length}]`;
  if (typeof value === "object" && value !== null) return "{…}";
  return typeof value === "string" ? JSON.stringify(value.slice(0, 40)) : String(value);
}
