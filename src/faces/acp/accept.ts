/**
 * Whether a client prefers an event stream to JSON, by its `Accept` header: the type with the greater weight wins (RFC
 * 9110, section 12.5.1). At equal weight the stream wins if it is named. If only `*` matches both, JSON wins.
 */
export function prefersEventStream(accept: string | undefined): boolean {
  if (accept === undefined) return false;
  const ranges = accept.split(",").map(readRange);
  const stream = weigh(ranges, "text/event-stream");
  const json = weigh(ranges, "application/json");
  if (stream.weight !== json.weight) return stream.weight > json.weight;
  return stream.weight > 0 && stream.isNamed;
}

interface Range {
  readonly type: string;
  readonly weight: number;
}

function readRange(text: string): Range {
  const [type = "", ...parameters] = text.split(";");
  let weight = 1;
  for (const parameter of parameters) {
    const match = /^\s*q\s*=\s*([01](?:\.\d*)?)\s*$/i.exec(parameter);
    if (match !== null) weight = Number(match[1]);
  }
  return { type: type.trim().toLowerCase(), weight };
}

/** The weight of a media type: that of the most specific range that matches it. */
function weigh(ranges: readonly Range[], type: string): { readonly weight: number; readonly isNamed: boolean } {
  const named = ranges.find((range) => range.type === type);
  const meant = `${type.slice(0, type.indexOf("/"))}/*`;
  const found = named ?? ranges.find((range) => range.type === meant) ?? ranges.find((range) => range.type === "*/*");
  return { weight: found?.weight ?? 0, isNamed: named !== undefined };
}
