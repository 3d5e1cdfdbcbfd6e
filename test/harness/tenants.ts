/*
 * Tenants whose values carry their names, so that a value of one that another gets is seen wherever it comes up.
 */

/** None of the names is the beginning of another one. */
export const TENANTS = ["red", "blue", "green", "gold", "pink", "teal", "plum", "lime"] as const;

/** What a text of a tenant begins with. Nothing, where tenants are not told apart. */
export function markOf(tenant: string | undefined): string {
  return tenant === undefined ? "" : `@${tenant} `;
}

/** In a text, or as `of` in an object. */
const MARK = /@([a-z]+) |"of":"([a-z]+)"|\\"of\\":\\"([a-z]+)\\"/g;

/** The other tenants whose values a value contains. */
export function othersIn(tenant: string, value: unknown): string[] {
  const text = JSON.stringify(value) ?? "";
  const found = new Set<string>();
  for (const [, ...names] of text.matchAll(MARK)) {
    const name = names.find((one) => one !== undefined);
    if (name !== undefined && name !== tenant) found.add(name);
  }
  return [...found];
}
