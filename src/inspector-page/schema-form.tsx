import type { Signal } from "@preact/signals";
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { Presses, Schema } from "./schema.ts";
import { fieldOf, firstValue, listIn, memberOf, resolved, shownAs, withMember } from "./schema.ts";
import type { Issue } from "./server.ts";
import { Refused } from "./server.ts";
import { Notice } from "./words.tsx";

type Path = readonly (string | number)[];

interface FieldProps {
  readonly schema: Schema;
  readonly root: Schema;
  readonly label: string;
  readonly path: Path;
  readonly value: unknown;
  readonly isRequired: boolean;
  /** The schemas of the fields above, from the outermost one that is shown at once. */
  readonly above: readonly Schema[];
  readonly issues: readonly Issue[];
  /** Gives the value that follows on another one. With undefined the field has no value. */
  readonly onChange: (change: (before: unknown) => unknown) => void;
}

/** What was typed into forms that were left, by their names. */
const drafts = new Map<string, Signal<unknown>>();
/** How many of them are kept. */
const MOST_DRAFTS = 200;

/** The value of a form. What was typed there before is still there. */
function draftOf(name: string | undefined, first: () => unknown): Signal<unknown> {
  const known = name === undefined ? undefined : drafts.get(name);
  if (known !== undefined) return known;
  const value = signal(first());
  if (name !== undefined) drafts.set(name, value);
  for (const oldest of drafts.keys()) {
    if (drafts.size <= MOST_DRAFTS) break;
    drafts.delete(oldest);
  }
  return value;
}

/**
 * A form for a value of a JSON Schema; without one, for a text. The server decides whether a value fits: what it says is
 * shown at the field that it names.
 */
export function SchemaForm({
  schema,
  label,
  submit,
  presses,
  draft,
  isOver = false,
  onSubmit,
  children,
}: {
  readonly schema: Schema | null;
  readonly label: string;
  readonly submit: string;
  /** Buttons that send the form with a value each, in place of one that sends it. */
  readonly presses?: Presses | undefined;
  /** The name under which what is typed is kept, when the form is left. Left out: it is not. */
  readonly draft?: string;
  /** Whether nothing can be sent any more. What was typed is shown. */
  readonly isOver?: boolean;
  readonly onSubmit: (value: unknown) => Promise<void>;
  readonly children?: ComponentChildren;
}) {
  const shown = presses === undefined ? schema : presses.rest;
  const root = shown ?? { type: "string", maxLength: 10_000 };
  // A state would be that of the last rendering, which a fast user may be ahead of.
  const [value] = useState(() => draftOf(draft, () => firstValue(root, root)));
  const [error, setError] = useState<Refused | null>(null);
  const [isBusy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (error !== null) form.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
  }, [error]);
  const send = async (sent: unknown): Promise<void> => {
    if (isBusy || isOver) return;
    setBusy(true);
    setError(null);
    try {
      await onSubmit(sent);
      if (draft !== undefined) drafts.delete(draft);
    } catch (refused) {
      setError(refused instanceof Refused ? refused : new Refused(String(refused), []));
    }
    setBusy(false);
  };
  const issues = (error?.issues ?? []).map(({ path, message }) => ({ path: withoutPrefix(path), message }));
  const onSend = (event: Event): void => {
    event.preventDefault();
    // `Enter` in a field does not choose between yes and no.
    if (presses !== undefined) form.current?.querySelector<HTMLElement>("[data-key]")?.focus();
    else void send(schema === null ? (value.value ?? "") : value.value);
  };
  return (
    <form
      class="schema-form"
      ref={form}
      onSubmit={onSend}
      onKeyDown={(event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.current?.requestSubmit();
      }}
      noValidate
    >
      <fieldset class="whole-form" disabled={isOver}>
        {(presses === undefined || shown !== null) && (
          <FieldFor
            {...{ schema: root, root, label, path: [], value: value.value, issues, isRequired: true, above: [] }}
            onChange={(change) => {
              value.value = change(value.value);
            }}
          />
        )}
        {error !== null && !isOver && <Notice>{error.message}</Notice>}
      </fieldset>
      {!isOver && (
        <div class="buttons">
          {presses === undefined ? (
            <button type="submit" disabled={isBusy}>
              {submit}
            </button>
          ) : (
            <PressButtons
              presses={presses}
              isBusy={isBusy}
              onPress={(pressed) =>
                send(presses.member === null ? pressed : withMember(value.value, presses.member, () => pressed))
              }
            />
          )}
          {children}
        </div>
      )}
    </form>
  );
}

/** A button for each value, of which one answers. */
function PressButtons({
  presses: { label, schema, values },
  isBusy,
  onPress,
}: {
  readonly presses: Presses;
  readonly isBusy: boolean;
  readonly onPress: (value: unknown) => void;
}) {
  return (
    <fieldset class="presses">
      <legend class={label === null ? "unseen" : undefined}>{label ?? "Answer"}</legend>
      <Description schema={schema} />
      {values.map((value, index) => (
        <button
          key={String(value)}
          type="button"
          class="first"
          data-key={value === true ? "y" : value === false ? "n" : String(index + 1)}
          disabled={isBusy}
          onClick={() => onPress(value)}
        >
          {value === true ? "Yes" : value === false ? "No" : String(value)}
        </button>
      ))}
    </fieldset>
  );
}

/** The path within the value. The server names the property of the request first. */
function withoutPrefix(path: Path): Path {
  return path[0] === "await_resume" || path[0] === "answer" || path[0] === "input" ? path.slice(1) : path;
}

function FieldFor(props: FieldProps): JSX.Element {
  const schema = resolved(props.schema, props.root);
  const field = fieldOf(schema);
  const label = schema.title ?? props.label;
  const shown = shownAs(props.schema, props.root, props.above, props.isRequired);
  const inner = { ...props, schema, label, above: shown.within };
  if (shown.is === "behind add") return <Added {...props} label={label} />;
  if (shown.is === "json") return <JsonField {...inner} />;
  switch (field.is) {
    case "object":
      return (
        <Group {...inner}>
          {field.properties.map(([name, property, isRequired]) => {
            return (
              <FieldFor
                key={name}
                {...{ schema: property, root: props.root, label: name, isRequired, issues: props.issues }}
                above={shown.within}
                path={[...props.path, name]}
                value={memberOf(props.value, name)}
                onChange={(change) => props.onChange((before) => withMember(before, name, change))}
              />
            );
          })}
        </Group>
      );
    case "list":
      return <List {...inner} items={field.items} />;
    case "variants":
      return <Variants {...inner} variants={field.variants} />;
    case "choice":
      return (
        <Labelled {...inner}>
          {(aria) => (
            <select
              {...aria}
              value={String(field.values.findIndex((one) => same(one, props.value)))}
              onChange={({ currentTarget }) => props.onChange(() => field.values[Number(currentTarget.value)])}
            >
              <option value="-1" />
              {field.values.map((one, index) => (
                <option key={String(index)} value={String(index)}>
                  {typeof one === "string" ? one : JSON.stringify(one)}
                </option>
              ))}
            </select>
          )}
        </Labelled>
      );
    case "boolean":
      return <YesOrNo {...inner} />;
    case "null":
      return <p class="field">{label}: none</p>;
    case "json":
      return <JsonField {...inner} />;
    default:
      return <Input {...inner} is={field.is} />;
  }
}

/** A field that is shown when the user adds it, or has a value already. */
function Added(props: FieldProps) {
  const [isOpen, setOpen] = useState(props.value !== undefined);
  const { label, path, issues, schema, root, onChange } = props;
  if (!isOpen)
    return (
      <p class="field">
        <button
          type="button"
          class="link"
          onClick={() => {
            setOpen(true);
            onChange(() => firstValue(schema, root));
          }}
        >
          Add {label}
        </button>
        <Problems {...{ path, issues }} />
      </p>
    );
  return (
    <div class="item">
      <FieldFor {...props} isRequired above={[]} />
      <button
        type="button"
        class="link"
        onClick={() => {
          setOpen(false);
          onChange(() => undefined);
        }}
      >
        Remove {label}
      </button>
    </div>
  );
}

/** The fields of an object, or of an item. The outermost group needs no frame. */
function Group({ label, path, issues, schema, children }: FieldProps & { readonly children: ComponentChildren }) {
  if (path.length === 0)
    return (
      <>
        <Description schema={schema} />
        {children}
        <Problems {...{ path, issues }} />
      </>
    );
  return (
    <fieldset>
      <legend>{label}</legend>
      <Description schema={schema} />
      {children}
      <Problems {...{ path, issues }} />
    </fieldset>
  );
}

function Description({ schema, id }: { readonly schema: Schema; readonly id?: string }) {
  if (typeof schema.description !== "string") return null;
  return (
    <small id={id} class="description">
      {schema.description}
    </small>
  );
}

/** What the server says of the value at a path. */
function Problems({ path, issues, id }: Pick<FieldProps, "path" | "issues"> & { readonly id?: string }) {
  const own = problemsAt(path, issues);
  if (own.length === 0) return null;
  return (
    <b id={id} class="problem">
      {own.join("; ")}
    </b>
  );
}

function problemsAt(path: Path, issues: readonly Issue[]): readonly string[] {
  return issues.filter((issue) => issue.path.join("\0") === path.join("\0")).map(({ message }) => message);
}

/** The attributes that tie an input to its label, its description and what is wrong with it. */
interface Aria {
  readonly id: string;
  readonly "aria-describedby": string;
  readonly "aria-invalid": boolean;
  readonly "aria-required": boolean;
}

function Labelled(props: FieldProps & { readonly children: (aria: Aria) => JSX.Element }) {
  const id = useId();
  const { label, isRequired, path, issues, schema } = props;
  return (
    <p class="field">
      <label htmlFor={id}>
        {label}
        {!isRequired && <small> (optional)</small>}
      </label>
      {props.children({
        id,
        "aria-describedby": `${id}-about ${id}-problem`,
        "aria-invalid": problemsAt(path, issues).length > 0,
        "aria-required": isRequired,
      })}
      <Description id={`${id}-about`} schema={schema} />
      <Problems id={`${id}-problem`} {...{ path, issues }} />
    </p>
  );
}

const inputTypes: Readonly<Record<string, string>> = { date: "date", email: "email", uri: "url", time: "time" };

function Input(props: FieldProps & { readonly is: "text" | "long text" | "number" | "integer" }) {
  const { schema, value, onChange, is, isRequired } = props;
  const isNumber = is === "number" || is === "integer";
  const read = ({ currentTarget: { value: text } }: { currentTarget: { value: string } }): void => {
    if (text === "") onChange(() => (isNumber || !isRequired ? undefined : ""));
    // What is no number goes as it is, so that the server says what it expects.
    else onChange(() => (isNumber && Number.isFinite(Number(text)) ? Number(text) : text));
  };
  const text = typeof value === "string" || typeof value === "number" ? String(value) : "";
  const type = isNumber ? "number" : (inputTypes[schema.format ?? ""] ?? "text");
  return (
    <Labelled {...props}>
      {(aria) =>
        is === "long text" ? (
          <textarea {...aria} rows={3} value={text} onInput={read} />
        ) : (
          <input
            {...aria}
            type={type as "text"}
            step={is === "number" ? "any" : undefined}
            min={schema.minimum}
            max={schema.maximum}
            autocomplete="off"
            value={text}
            onInput={read}
          />
        )
      }
    </Labelled>
  );
}

/** A question of yes or no has no answer before it was given. */
function YesOrNo({ label, path, issues, schema, value, isRequired, onChange }: FieldProps) {
  const name = useId();
  const isWrong = problemsAt(path, issues).length > 0;
  return (
    <fieldset class="choice" aria-describedby={`${name}-problem`}>
      <legend>
        {label}
        {!isRequired && <small> (optional)</small>}
      </legend>
      <Description schema={schema} />
      {[true, false].map((one) => (
        <label key={String(one)}>
          <input
            type="radio"
            name={name}
            aria-invalid={isWrong}
            checked={value === one}
            onChange={() => onChange(() => one)}
          />
          {one ? " yes " : " no "}
        </label>
      ))}
      <Problems id={`${name}-problem`} {...{ path, issues }} />
    </fieldset>
  );
}

function List(props: FieldProps & { readonly items: Schema }) {
  const { root, path, issues, label } = props;
  const change = (how: (values: readonly unknown[]) => readonly unknown[]): void =>
    props.onChange((before) => how(listIn(before)));
  return (
    <fieldset>
      <legend>{label}</legend>
      <Description schema={props.schema} />
      {listIn(props.value).map((value, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: an item has no other name than its place.
        <div key={index} class="item">
          <FieldFor
            {...{ schema: props.items, root, label: `${label} ${index + 1}`, isRequired: true, issues, value }}
            above={[]}
            path={[...path, index]}
            onChange={(next) => change((values) => values.with(index, next(values[index]) ?? null))}
          />
          <button type="button" class="link" onClick={() => change((values) => values.toSpliced(index, 1))}>
            Remove {label} {index + 1}
          </button>
        </div>
      ))}
      <Problems {...{ path, issues }} />
      <button
        type="button"
        class="link"
        onClick={() => change((values) => [...values, firstValue(props.items, root) ?? null])}
      >
        Add {label}
      </button>
    </fieldset>
  );
}

function Variants(props: FieldProps & { readonly variants: readonly Schema[] }) {
  const { root, variants } = props;
  const [chosen, setChosen] = useState(() =>
    Math.max(
      0,
      variants.findIndex((one) => fits(one, root, props.value)),
    ),
  );
  const id = useId();
  const schema = variants[chosen] ?? {};
  return (
    <fieldset>
      <legend>{props.label}</legend>
      <label htmlFor={id}>Kind </label>
      <select
        id={id}
        value={String(chosen)}
        onChange={({ currentTarget }) => {
          const next = Number(currentTarget.value);
          setChosen(next);
          props.onChange(() => firstValue(variants[next] ?? {}, root));
        }}
      >
        {variants.map((one, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a variant has no other name than its place.
          <option key={index} value={String(index)}>
            {nameOf(resolved(one, root), index)}
          </option>
        ))}
      </select>
      <FieldFor key={chosen} {...props} schema={schema} />
    </fieldset>
  );
}

function nameOf({ title, type, const: only, enum: values, properties }: Schema, index: number): string {
  if (title !== undefined) return title;
  if (only !== undefined) return String(only);
  if (values !== undefined) return values.map(String).join(", ");
  const tag = Object.values(properties ?? {}).find((property) => property.const !== undefined);
  return tag === undefined ? String(type ?? `kind ${index + 1}`) : String(tag.const);
}

function fits(schema: Schema, root: Schema, value: unknown): boolean {
  const { type, const: only } = resolved(schema, root);
  if (only !== undefined) return same(only, value);
  if (value === null) return type === "null";
  if (Array.isArray(value)) return type === "array";
  return type === typeof value || (type === "integer" && Number.isInteger(value));
}

/** A value that no other field fits. */
function JsonField(props: FieldProps) {
  const [text, setText] = useState(() => (props.value === undefined ? "" : JSON.stringify(props.value, null, 2)));
  const [isBroken, setBroken] = useState(false);
  const read = (next: string): void => {
    setText(next);
    try {
      const value: unknown = next.trim() === "" ? undefined : JSON.parse(next);
      props.onChange(() => value);
      setBroken(false);
    } catch {
      setBroken(true);
      props.onChange(() => undefined);
    }
  };
  const issues = isBroken ? [...props.issues, { path: props.path, message: "This is not JSON." }] : props.issues;
  return (
    <Labelled {...props} issues={issues} label={`${props.label} (JSON)`}>
      {(aria) => (
        <textarea
          {...aria}
          rows={4}
          spellcheck={false}
          value={text}
          onInput={(event) => read(event.currentTarget.value)}
        />
      )}
    </Labelled>
  );
}

function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
