/** The longest list that has no room for more. */
const SHORT = 16;

/**
 * A list with more behind it. An array that grows reserves memory for sixteen more: a list of at most that many is replaced
 * by one of the exact length, and is never changed, so that others may keep it. A longer one grows. Only the owner of a list
 * calls this, and then forgets the list that it has given.
 */
export function grown<T>(list: readonly T[], more: readonly T[]): readonly T[] {
  if (list.length + more.length > SHORT) {
    const long = list.length > SHORT ? (list as T[]) : list.slice();
    for (const item of more) long.push(item);
    return long;
  }
  if (list.length === 0) return more;
  // Filled here, because `concat` takes ten times as long.
  const all = new Array<T>(list.length + more.length);
  let at = 0;
  for (const item of list) all[at++] = item;
  for (const item of more) all[at++] = item;
  return all;
}
