/** A JSON Schema of which each level has eight references to the next one: with all of its fields a form would not end. */
export function wideSchema(levels: number): object {
  const levelOf = (depth: number): readonly [string, object] => {
    const names = Array.from({ length: 8 }, (_, index) => `p${index}`);
    const next = { $ref: `#/$defs/d${depth + 1}` };
    const properties = Object.fromEntries(names.map((name) => [name, next]));
    return [`d${depth}`, { type: "object", required: names, properties }];
  };
  return {
    $ref: "#/$defs/d0",
    $defs: Object.fromEntries(Array.from({ length: levels }, (_, depth) => levelOf(depth))),
  };
}
