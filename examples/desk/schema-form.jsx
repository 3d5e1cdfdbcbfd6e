import { useState } from "react";

/** A form for a value of a JSON Schema with an object of plain fields. `issues` are those of the value that was refused. */
export function SchemaForm({ schema, issues, onSubmit, children }) {
  const [values, setValues] = useState({});
  const fields = Object.entries(schema.properties ?? {});
  const send = (event) => {
    event.preventDefault();
    onSubmit(Object.fromEntries(fields.flatMap(([name, field]) => entriesOf(name, field, values[name]))));
  };
  return (
    <form onSubmit={send} noValidate>
      {fields.map(([name, field]) => (
        <p key={name}>
          <label htmlFor={name}>{field.title ?? name}</label>{" "}
          <Field name={name} field={field} onChange={(value) => setValues({ ...values, [name]: value })} />
          {issues
            .filter(({ path }) => path[0] === name)
            .map(({ message }) => (
              <b key={message} role="alert" data-field={name}>
                {message}
              </b>
            ))}
        </p>
      ))}
      {children}
    </form>
  );
}

function Field({ name, field, onChange }) {
  if (field.enum !== undefined)
    return (
      <select id={name} name={name} defaultValue="" onChange={(event) => onChange(event.target.value)}>
        <option value="" />
        {field.enum.map((value) => (
          <option key={value}>{value}</option>
        ))}
      </select>
    );
  if (field.type === "boolean")
    return <input id={name} name={name} type="checkbox" onChange={(event) => onChange(event.target.checked)} />;
  const type = isNumber(field) ? "number" : "text";
  return <input id={name} name={name} type={type} onChange={(event) => onChange(event.target.value)} />;
}

/** What is left empty is left out. A box that was not touched is a no. */
function entriesOf(name, field, value) {
  if (field.type === "boolean") return [[name, value === true]];
  if (value === undefined || value === "") return [];
  return [[name, isNumber(field) ? Number(value) : value]];
}

function isNumber({ type }) {
  return type === "integer" || type === "number";
}
